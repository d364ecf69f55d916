// Streams, and host functions in stream order. All streams are independent of the default stream.
// CUDA's default stream waits for streams that were created without cudaStreamNonBlocking; this one
// does not.
#include <utility>

#include "tests/cuda_stand_in/device/graph.h"
#include "tests/cuda_stand_in/runtime/call.h"

namespace {

using recoup::stand_in::current_device;
using recoup::stand_in::machine;
using recoup::stand_in::Task;

}  // namespace

RECOUP_CUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                                         int priority) {
  RECOUP_BEGIN();
  *stream = reinterpret_cast<cudaStream_t>(machine().streams.create(current_device(), priority));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  RECOUP_BEGIN();
  *stream = reinterpret_cast<cudaStream_t>(machine().streams.create(current_device(), 0));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  RECOUP_BEGIN();
  *stream = reinterpret_cast<cudaStream_t>(machine().streams.create(current_device(), 0));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(gone, stream);
  machine().streams.destroy(gone);
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  RECOUP_BEGIN();
  RECOUP_STREAM(of, stream);
  *priority = of->priority;
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(of, stream);
  {
    const std::lock_guard lock(machine().streams.mutex);
    if (of->capture) {
      of->capture->broken = true;
      RECOUP_FAIL(cudaErrorStreamCaptureUnsupported);
    }
  }
  RECOUP_REQUIRE_NO_CAPTURE();
  if (machine().sites.drops(__func__)) {
    return cudaSuccess;
  }
  machine().streams.wait_for_stream(of);
  return recoup::stand_in::work_failure();
}

RECOUP_CUDA_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  RECOUP_BEGIN();
  RECOUP_STREAM(of, stream);
  RECOUP_REQUIRE_NO_CAPTURE();
  if (!machine().streams.is_idle(of)) {
    RECOUP_FAIL(cudaErrorNotReady);
  }
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                               void* argument) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  Task task;
  task.what = __func__;
  task.work = [function, argument] { function(argument); };
  machine().streams.push(on, std::move(task));
  return cudaSuccess;
}

RECOUP_CUDA_API cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                                  cudaStreamCallback_t function, void* argument,
                                                  unsigned /*flags*/) {
  RECOUP_BEGIN();
  RECOUP_STREAM(on, stream);
  Task task;
  task.what = __func__;
  task.work = [function, argument, stream] { function(stream, cudaSuccess, argument); };
  machine().streams.push(on, std::move(task));
  return cudaSuccess;
}
