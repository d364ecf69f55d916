// Copies and fills.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::bytes_of;
using recoup::stand_in::is_device;
using recoup::stand_in::machine;
using recoup::stand_in::require_access;
using recoup::stand_in::Stream;
using recoup::stand_in::Task;

struct Speeds {
  double device;  // bytes per microsecond within a device
  double link;    // bytes per microsecond between host and device
};

// 1 TB/s and 20 GB/s; in host-only mode about those of an H200, which reads and writes 3 TB/s.
Speeds speeds() {
  return recoup::stand_in::settings().host_only ? Speeds{.device = 1.5e6, .link = 5.5e4}
                                                : Speeds{.device = 1e6, .link = 2e4};
}

void count_copy() {
  const std::lock_guard lock(machine().streams.mutex);
  ++machine().streams.counted.copies;
}

bool is_captured(Stream* stream) {
  const std::lock_guard lock(machine().streams.mutex);
  return stream->capture != nullptr;
}

// Note [Host only]: the device's memory stays untouched.
bool is_left_out(std::size_t size) {
  return recoup::stand_in::settings().host_only && size > recoup::stand_in::kMostCopied;
}

// Host memory that is not pinned is read during the call, and written before the call returns.
cudaError_t copy(Stream* stream, void* to, const void* from, std::size_t size, bool asynchronous) {
  count_copy();
  if (size == 0) {
    return cudaSuccess;
  }
  if (!machine().memory.accessible(to, size) || !machine().memory.accessible(from, size)) {
    return cudaErrorInvalidValue;
  }
  const bool within = is_device(to) && is_device(from);
  const bool is_target_shared = is_device(to) || machine().memory.is_pinned(to);
  const bool is_source_shared = is_device(from) || machine().memory.is_pinned(from);
  const bool host_waits = !within && (!asynchronous || !is_target_shared);
  if (host_waits && is_captured(stream)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  Task task;
  task.what = "a copy";
  task.microseconds = 5 + static_cast<double>(size) / (within ? speeds().device : speeds().link);
  if (is_left_out(size)) {
    task.work = [] {};
  } else if (is_source_shared) {
    task.uses.push_back(
        {.memory = from, .size = size, .write = false, .what = "the source of a copy"});
    task.work = [to, from, size] {
      if (require_access("a copy to memory", to, size) && require_access("a copy", from, size)) {
        std::memmove(bytes_of(to), bytes_of(from), size);
      }
    };
  } else {
    const auto* const begin = static_cast<const char*>(from);
    task.work = [to, staged = std::vector<char>(begin, begin + size)] {
      if (require_access("a copy to memory", to, staged.size())) {
        std::memcpy(bytes_of(to), staged.data(), staged.size());
      }
    };
  }
  if (is_target_shared) {
    task.uses.push_back(
        {.memory = to, .size = size, .write = true, .what = "the target of a copy"});
  }
  machine().streams.push(stream, std::move(task));
  if (host_waits) {
    machine().streams.wait_for_stream(stream);
  }
  return recoup::stand_in::work_failure();
}

cudaError_t fill(Stream* stream, void* to, int value, std::size_t size) {
  if (size == 0) {
    return cudaSuccess;
  }
  if (!machine().memory.accessible(to, size)) {
    return cudaErrorInvalidValue;
  }
  Task task;
  task.what = "a fill";
  task.microseconds = 2 + static_cast<double>(size) / speeds().device;
  task.uses.push_back({.memory = to, .size = size, .write = true, .what = task.what});
  task.work = [to, value, size] {
    if (!is_left_out(size) && require_access("a fill", to, size)) {
      std::memset(bytes_of(to), value, size);
    }
  };
  machine().streams.push(stream, std::move(task));
  return recoup::stand_in::work_failure();
}

cudaError_t ended(cudaError_t error, const char* function) {
  return error == cudaSuccess ? error : recoup::stand_in::failed(error, function);
}

}  // namespace

RECOUP_CUDA_API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size,
                                       cudaMemcpyKind /*kind*/) {
  RECOUP_BEGIN();
  RECOUP_REQUIRE_NO_CAPTURE();
  return ended(copy(recoup::stand_in::stream_of(nullptr), to, from, size, false), __func__);
}

RECOUP_CUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size,
                                            cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  return ended(copy(on, to, from, size, true), __func__);
}

RECOUP_CUDA_API cudaError_t cudaMemcpyPeerAsync(void* to, int /*to_device*/, const void* from,
                                                int /*from_device*/, std::size_t size,
                                                cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  return ended(copy(on, to, from, size, true), __func__);
}

RECOUP_CUDA_API cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                              std::size_t from_pitch, std::size_t width,
                                              std::size_t height, cudaMemcpyKind /*kind*/,
                                              cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error = copy(on, static_cast<char*>(to) + row * to_pitch,
                                   static_cast<const char*>(from) + row * from_pitch, width, true);
    if (error != cudaSuccess) {
      RECOUP_FAIL(error);
    }
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaMemset(void* memory, int value, std::size_t size) {
  RECOUP_BEGIN();
  RECOUP_REQUIRE_NO_CAPTURE();
  return ended(fill(recoup::stand_in::stream_of(nullptr), memory, value, size), __func__);
}

RECOUP_CUDA_API cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t size,
                                            cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  return ended(fill(on, memory, value, size), __func__);
}
