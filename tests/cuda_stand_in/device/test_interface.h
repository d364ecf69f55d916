// What tests and the stand-in's other libraries ask of it, beside CUDA's functions. libcudart.so.13
// exports these.
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
// Work for a stream of the current device, which uses these bytes. `drop` is called with the
// argument when it will not be used any more. `what` lives for ever.
RECOUP_STAND_IN_API void stand_in_launch(void* stream, void (*work)(void*), void* argument,
                                         void (*drop)(void*), const char* what,
                                         const StandInUse* uses, std::size_t count);
// 5 counts: waits of the host, waits of streams, records of events, copies, launches.
RECOUP_STAND_IN_API void stand_in_counters(std::int64_t* counts);
RECOUP_STAND_IN_API int stand_in_races();
// Lines of a count and a kernel's name; the next call overwrites it.
RECOUP_STAND_IN_API const char* stand_in_launches();

// ---- faults: see device/faults.h ----
RECOUP_STAND_IN_API void stand_in_fail(const char* function, std::int64_t call, int code);
RECOUP_STAND_IN_API void stand_in_clear_faults();
RECOUP_STAND_IN_API std::int64_t stand_in_calls(const char* function);
RECOUP_STAND_IN_API std::int64_t stand_in_dropped();
