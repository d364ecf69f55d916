#include "tests/cuda_stand_in/device/test_interface.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "tests/cuda_stand_in/device/machine.h"
#include "tests/cuda_stand_in/runtime/call.h"

using recoup::stand_in::machine;

void* stand_in_bytes(const void* memory) { return recoup::stand_in::bytes_of(memory); }

int stand_in_accessible(const void* memory, std::size_t size) {
  return machine().memory.accessible(memory, size) ? 1 : 0;
}

void stand_in_illegal(const char* what, const void* memory, std::size_t size) {
  recoup::stand_in::report_illegal_access(what, memory, size);
}

std::size_t stand_in_used(int device) { return machine().memory.used(device); }

std::size_t stand_in_pinned() { return machine().memory.pinned(); }

void stand_in_set_pinned_limit(std::size_t limit) { machine().memory.set_pinned_limit(limit); }

void stand_in_launch(void* stream, void (*work)(void*), void* argument, void (*drop)(void*),
                     const char* what, const StandInUse* uses, std::size_t count) {
  const std::shared_ptr<void> held(argument, drop);
  recoup::stand_in::Task task;
  task.work = [held, work] { work(held.get()); };
  task.microseconds = 10;
  if (recoup::stand_in::settings().log > 2) {
    std::fprintf(stderr, "CUDA stand-in: work %s\n", what);
  }
  task.what = what;
  for (std::size_t i = 0; i < count; ++i) {
    task.uses.push_back({.memory = uses[i].memory,
                         .size = uses[i].size,
                         .write = uses[i].write != 0,
                         .what = what});
  }
  machine().streams.push(recoup::stand_in::stream_of(static_cast<cudaStream_t>(stream)),
                         std::move(task));
}

void stand_in_product(void* stream, double flops, void* workspace, std::size_t size,
                      const char* what) {
  constexpr double kFlopsPerMicrosecond = 4e8;  // 400 TFLOP/s, in half precision
  recoup::stand_in::Task task;
  task.work = [] {};
  task.microseconds = 3 + flops / kFlopsPerMicrosecond;
  task.what = what;
  if (workspace != nullptr && size > 0) {
    if (!machine().memory.accessible(workspace, size)) {
      recoup::stand_in::report_illegal_access(what, workspace, size);
    }
    task.uses.push_back({.memory = workspace, .size = size, .write = true, .what = what});
  }
  machine().streams.push(recoup::stand_in::stream_of(static_cast<cudaStream_t>(stream)),
                         std::move(task));
}

void stand_in_counters(std::int64_t* counts) {
  const recoup::stand_in::Counters counters = machine().streams.counters();
  counts[0] = counters.host_waits;
  counts[1] = counters.stream_waits;
  counts[2] = counters.event_records;
  counts[3] = counters.copies;
  counts[4] = counters.launches;
}

int stand_in_races() { return machine().streams.races(); }

const char* stand_in_launches() {
  static std::string text;
  text = recoup::stand_in::launches().report();
  return text.c_str();
}

void stand_in_fail(const char* function, std::int64_t call, int code) {
  machine().faults.fail(function, call, code);
}

void stand_in_clear_faults() { machine().faults.clear(); }

std::int64_t stand_in_calls(const char* function) { return machine().faults.calls(function); }

const char* stand_in_all_calls() {
  static std::string text;
  text = machine().faults.report();
  return text.c_str();
}

std::int64_t stand_in_dropped() { return machine().sites.dropped(); }
