#include "csrc/cuda/toolkit/cudart.h"

#include <cuda_runtime_api.h>

#include <string>

#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {
namespace {

[[noreturn]] void fail(cudaError_t error, const char* call) {
  std::string remedy;
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      error == cudaErrorStubLibrary) {
    remedy =
        "; a budget on a GPU needs an NVIDIA driver that is not older than the toolkit: see "
        "what nvidia-smi says";
  } else if (error == cudaErrorInitializationError) {
    remedy = "; a process that was forked after CUDA started cannot use it: start it by spawn";
  }
  throw CudaError(str_cat(call, ": ", cudaGetErrorString(error), remedy));
}

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    cudaGetLastError();  // else the next call that asks gets it too
    fail(error, call);
  }
}

#define RECOUP_CUDA(function, ...) check(function(__VA_ARGS__), #function)

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t native(Event event) { return static_cast<cudaEvent_t>(event.handle); }

// The calling thread's device, put back at the end.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    RECOUP_CUDA(cudaGetDevice, &before_);
    if (before_ != device) {
      RECOUP_CUDA(cudaSetDevice, device);
      changed_ = true;
    }
  }
  ~OnDevice() {
    if (changed_) {
      cudaSetDevice(before_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

class Cudart final : public Runtime {
 public:
  int device_count() override {
    int count = 0;
    RECOUP_CUDA(cudaGetDeviceCount, &count);
    return count;
  }

  DeviceMemory memory(int device) override {
    const OnDevice on(device);
    std::size_t free = 0;
    std::size_t total = 0;
    RECOUP_CUDA(cudaMemGetInfo, &free, &total);
    return {.free = Bytes(static_cast<std::int64_t>(free)),
            .total = Bytes(static_cast<std::int64_t>(total))};
  }

  void* allocate(int device, Bytes size) override {
    const OnDevice on(device);
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(size.count()));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "cudaMalloc");
    return memory;
  }

  void release(int device, void* memory) noexcept override {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device);
    cudaFree(memory);
    cudaSetDevice(before);
  }

  Event create_event(int device, bool timed) override {
    const OnDevice on(device);
    cudaEvent_t event = nullptr;
    RECOUP_CUDA(cudaEventCreateWithFlags, &event,
                timed ? cudaEventDefault : cudaEventDisableTiming);
    return {event};
  }

  void destroy_event(Event event) noexcept override { cudaEventDestroy(native(event)); }

  void record(Event event, Stream stream) override {
    const OnDevice on(stream.device);
    RECOUP_CUDA(cudaEventRecord, native(event), native(stream));
  }

  bool done(Event event) override {
    const cudaError_t error = cudaEventQuery(native(event));
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(error, "cudaEventQuery");
    return true;
  }

  void synchronize(Event event) override { RECOUP_CUDA(cudaEventSynchronize, native(event)); }

  void wait(Stream stream, Event event) override {
    const OnDevice on(stream.device);
    RECOUP_CUDA(cudaStreamWaitEvent, native(stream), native(event), 0U);
  }

  Nanoseconds elapsed(Event from, Event to) override {
    float milliseconds = 0;
    RECOUP_CUDA(cudaEventElapsedTime, &milliseconds, native(from), native(to));
    return Nanoseconds(static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6));
  }

  void copy(Stream stream, void* to, const void* from, Bytes size) override {
    const OnDevice on(stream.device);
    RECOUP_CUDA(cudaMemcpyAsync, to, from, static_cast<std::size_t>(size.count()),
                cudaMemcpyDefault, native(stream));
  }

  void* allocate_pinned(Bytes size) override {
    void* memory = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&memory, static_cast<std::size_t>(size.count()), cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "cudaHostAlloc");
    return memory;
  }

  void release_pinned(void* memory) noexcept override { cudaFreeHost(memory); }

  void synchronize(Stream stream) override {
    const OnDevice on(stream.device);
    RECOUP_CUDA(cudaStreamSynchronize, native(stream));
  }

  bool capturing(Stream stream) override {
    const OnDevice on(stream.device);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    RECOUP_CUDA(cudaStreamIsCapturing, native(stream), &status);
    return status != cudaStreamCaptureStatusNone;
  }
};

}  // namespace

std::unique_ptr<Runtime> make_cudart() {
  auto runtime = std::make_unique<Cudart>();
  if (runtime->device_count() == 0) {
    fail(cudaErrorNoDevice, "cudaGetDeviceCount");
  }
  return runtime;
}

}  // namespace recoup::detail::cuda
