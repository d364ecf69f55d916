// The first statements of every runtime function.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "tests/cuda_stand_in/device/machine.h"

#define RECOUP_CUDA_API extern "C" __attribute__((visibility("default")))

namespace recoup::stand_in {

// The calling thread's device.
[[nodiscard]] int current_device();
void set_current_device(int device);

// Stores the error for cudaGetLastError, and returns it.
cudaError_t failed(cudaError_t error, const char* function);
// Called at the start of a runtime function. Returns an injected error, the error of a forked child
// of a process that uses CUDA, the error of failed work, or success.
[[nodiscard]] cudaError_t begin_call(const char* function);
// Begins a call of a driver function: returns an injected error code, or 0.
[[nodiscard]] int begin_driver_call(const char* function);
// Whether a capture forbids calls that may wait for the device. Invalidates that capture.
[[nodiscard]] bool forbidden_by_capture();
[[nodiscard]] cudaError_t work_failure();

// Null and the two handles of default streams denote the default stream of the current device.
[[nodiscard]] Stream* stream_of(cudaStream_t stream);
[[nodiscard]] bool is_known(cudaStream_t stream);
[[nodiscard]] std::shared_ptr<Event> event_of(cudaEvent_t event);

}  // namespace recoup::stand_in

#define RECOUP_FAIL(error) return ::recoup::stand_in::failed(error, __func__)
#define RECOUP_BEGIN()                                                     \
  if (const cudaError_t error_ = ::recoup::stand_in::begin_call(__func__); \
      error_ != cudaSuccess) {                                             \
    RECOUP_FAIL(error_);                                                   \
  }                                                                        \
  static_cast<void>(0)
#define RECOUP_REQUIRE_NO_CAPTURE()                 \
  if (::recoup::stand_in::forbidden_by_capture()) { \
    RECOUP_FAIL(cudaErrorStreamCaptureUnsupported); \
  }                                                 \
  static_cast<void>(0)
#define RECOUP_STREAM(name, handle)              \
  if (!::recoup::stand_in::is_known(handle)) {   \
    RECOUP_FAIL(cudaErrorInvalidResourceHandle); \
  }                                              \
  ::recoup::stand_in::Stream* const name = ::recoup::stand_in::stream_of(handle)
#define RECOUP_EVENT(name, handle)                                                              \
  const std::shared_ptr<::recoup::stand_in::Event> name = ::recoup::stand_in::event_of(handle); \
  if (name == nullptr) {                                                                        \
    RECOUP_FAIL(cudaErrorInvalidResourceHandle);                                                \
  }                                                                                             \
  static_cast<void>(0)
