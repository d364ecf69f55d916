#include "tests/cuda_stand_in/runtime/call.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

namespace recoup::stand_in {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
// The process in which CUDA was used first; a forked child cannot use it.
std::atomic<pid_t> used_by = 0;

}  // namespace

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

cudaError_t work_failure() { return static_cast<cudaError_t>(machine().failure.load()); }

cudaError_t failed(cudaError_t error, const char* function) {
  last_error = error;
  if (settings().log > 0 && error != cudaErrorNotReady) {
    std::fprintf(stderr, "CUDA stand-in: %s: %s\n", function, cudaGetErrorName(error));
  }
  return error;
}

cudaError_t begin_call(const char* function) {
  pid_t no_process = 0;
  used_by.compare_exchange_strong(no_process, getpid());
  if (used_by != getpid()) {
    return cudaErrorInitializationError;
  }
  if (const int injected = machine().faults.count(function); injected != 0) {
    return static_cast<cudaError_t>(injected);
  }
  return work_failure();
}

int begin_driver_call(const char* function) { return machine().faults.count(function); }

Stream* stream_of(cudaStream_t stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 2
             ? machine().streams.default_of(current_device())
             : reinterpret_cast<Stream*>(stream);
}

bool is_known(cudaStream_t stream) { return machine().streams.knows(stream_of(stream)); }

}  // namespace recoup::stand_in

namespace stand_in = recoup::stand_in;

RECOUP_CUDA_API cudaError_t cudaGetLastError() {
  const cudaError_t error = stand_in::last_error;
  stand_in::last_error = cudaSuccess;
  const cudaError_t lasting = stand_in::work_failure();
  return lasting != cudaSuccess ? lasting : error;
}

RECOUP_CUDA_API cudaError_t cudaPeekAtLastError() {
  const cudaError_t lasting = stand_in::work_failure();
  return lasting != cudaSuccess ? lasting : stand_in::last_error;
}

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define RECOUP_ERROR(name, text) {name, #name, text}

constexpr ErrorText kErrors[] = {
    RECOUP_ERROR(cudaSuccess, "no error"),
    RECOUP_ERROR(cudaErrorInvalidValue, "invalid argument"),
    RECOUP_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    RECOUP_ERROR(cudaErrorInitializationError, "initialization error"),
    RECOUP_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    RECOUP_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    RECOUP_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    RECOUP_ERROR(cudaErrorNotReady, "device not ready"),
    RECOUP_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    RECOUP_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    RECOUP_ERROR(cudaErrorPeerAccessUnsupported,
                 "peer access is not supported between these two devices"),
    RECOUP_ERROR(cudaErrorNotSupported, "operation not supported"),
    RECOUP_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                 "part or all of the requested memory range is already mapped"),
    RECOUP_ERROR(cudaErrorHostMemoryNotRegistered,
                 "pointer does not correspond to a registered memory region"),
    RECOUP_ERROR(cudaErrorStreamCaptureUnsupported,
                 "operation not permitted when stream is capturing"),
    RECOUP_ERROR(cudaErrorStreamCaptureUnjoined,
                 "capture was not completed: a stream was not joined to the origin (unjoined)"),
    RECOUP_ERROR(cudaErrorStreamCaptureMerge, "attempt to merge two captures"),
    RECOUP_ERROR(cudaErrorStreamCaptureIsolation, "dependency on uncaptured work in a stream"),
    RECOUP_ERROR(cudaErrorCapturedEvent,
                 "operation not permitted on an event last recorded in a capturing stream"),
    RECOUP_ERROR(cudaErrorStreamCaptureInvalidated,
                 "operation failed due to a previous error during capture"),
    RECOUP_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    RECOUP_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    RECOUP_ERROR(cudaErrorInsufficientDriver,
                 "CUDA driver version is insufficient for CUDA runtime version"),
};

#undef RECOUP_ERROR

constexpr ErrorText kOther = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};

const ErrorText& text_of(cudaError_t error) {
  for (const ErrorText& each : kErrors) {
    if (each.error == error) {
      return each;
    }
  }
  return kOther;
}

}  // namespace

RECOUP_CUDA_API const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
RECOUP_CUDA_API const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }
