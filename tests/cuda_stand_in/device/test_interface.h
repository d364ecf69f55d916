// Functions for tests and for the stand-in's other libraries, in addition to CUDA's.
// libcudart.so.13 exports them.
#pragma once

#include <cstddef>
#include <cstdint>

#define RECOUP_STAND_IN_API extern "C" __attribute__((visibility("default")))

// ---- memory ----
RECOUP_STAND_IN_API void* stand_in_bytes(const void* memory);
RECOUP_STAND_IN_API int stand_in_accessible(const void* memory, std::size_t size);
RECOUP_STAND_IN_API void stand_in_illegal(const char* what, const void* memory, std::size_t size);
RECOUP_STAND_IN_API std::size_t stand_in_used(int device);
RECOUP_STAND_IN_API std::size_t stand_in_pinned();
RECOUP_STAND_IN_API void stand_in_set_pinned_limit(std::size_t limit);

// ---- work ----
struct StandInUse {
  const void* memory;
  std::size_t size;
  int write;
};
// Enqueues work that uses these bytes on a stream of the current device. Calls `drop` with the
// argument when it is not used any more. `what` must stay valid forever.
RECOUP_STAND_IN_API void stand_in_launch(void* stream, void (*work)(void*), void* argument,
                                         void (*drop)(void*), const char* what,
                                         const StandInUse* uses, std::size_t count);
// Enqueues a matrix product of that many multiplications and additions, which uses a workspace.
RECOUP_STAND_IN_API void stand_in_product(void* stream, double flops, void* workspace,
                                          std::size_t size, const char* what);
// Writes 5 counts: host waits, stream waits, records of events, copies, launches.
RECOUP_STAND_IN_API void stand_in_counters(std::int64_t* counts);
RECOUP_STAND_IN_API int stand_in_races();
// Returns one line per kernel: a count and its name. The next call overwrites the text.
RECOUP_STAND_IN_API const char* stand_in_launches();

// ---- faults: see device/faults.h ----
RECOUP_STAND_IN_API void stand_in_fail(const char* function, std::int64_t call, int code);
RECOUP_STAND_IN_API void stand_in_clear_faults();
RECOUP_STAND_IN_API std::int64_t stand_in_calls(const char* function);
// Returns one line per called function: a count and its name. The next call overwrites the text.
RECOUP_STAND_IN_API const char* stand_in_all_calls();
RECOUP_STAND_IN_API std::int64_t stand_in_dropped();
