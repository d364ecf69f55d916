#include "tests/cuda_stand_in/device/machine.h"

#include <driver_types.h>

#include <cstdio>
#include <cstdlib>

namespace recoup::stand_in {
namespace {

Execution execution() {
  if (settings().host_only) {
    return Execution::kHostOnly;
  }
  return settings().synchronous ? Execution::kSynchronous : Execution::kLazy;
}

}  // namespace

Machine::Machine()
    : memory(settings().devices, settings().memory, settings().pinned),
      streams(settings().devices, settings().seed, execution()) {
  explain_segmentation_faults();
}

Machine& machine() {
  static Machine* const made = new Machine;
  return *made;
}

Launches& launches() {
  static Launches* const made = new Launches;
  return *made;
}

void report_illegal_access(const char* what, const void* memory, std::size_t size) {
  std::fprintf(stderr,
               "*** CUDA stand-in: illegal memory access: %s of %zu bytes at %p, which is not "
               "mapped\n",
               what, size, memory);
  if (settings().abort_at_faults) {
    std::abort();
  }
  machine().failure = cudaErrorIllegalAddress;
}

bool require_access(const char* what, const void* memory, std::size_t size) {
  const bool accessible = machine().memory.accessible(memory, size);
  if (!accessible) {
    report_illegal_access(what, memory, size);
  }
  return accessible;
}

}  // namespace recoup::stand_in
