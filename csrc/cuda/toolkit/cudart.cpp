#include "csrc/cuda/toolkit/cudart.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

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
        "; a GPU budget needs an NVIDIA driver at least as new as the toolkit: check the version "
        "with nvidia-smi";
  } else if (error == cudaErrorInitializationError) {
    remedy =
        "; a process that was forked after CUDA was initialized cannot use it: start it with "
        "spawn";
  }
  throw CudaError(str_cat(call, ": ", cudaGetErrorString(error), remedy));
}

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears it; otherwise the next query returns it again
    fail(error, call);
  }
}

#define RECOUP_CUDA(function, ...) check(function(__VA_ARGS__), #function)

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t native(Event event) { return static_cast<cudaEvent_t>(event.handle); }

// Switches the calling thread's device, and restores it at the end.
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

// While any thread captures a graph, CUDA forbids calls on all threads that may wait for a device;
// such a call makes the capture fail. Within this object, calls of the thread do not affect
// captures.
class Apart {
 public:
  Apart() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Apart() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

 private:
  // During the lifetime: the thread's own mode.
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void* open_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw CudaError(str_cat("no NVIDIA driver: ", dlerror()));
  }
  return library;
}

template <class Function>
Function find_in(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    throw CudaError(str_cat("the NVIDIA driver is too old: it has no ", name));
  }
  return reinterpret_cast<Function>(found);
}

// In two steps, because a header may define a function's name as a macro for a later version of it.
#define RECOUP_STRING(name) #name
#define RECOUP_DRIVER(member, function) \
  decltype(&function) member = find_in<decltype(&function)>(library, RECOUP_STRING(function))

// Functions that only the driver has. It is not linked, because recoup must load without it. It
// stays open, because the runtime uses it as well.
struct Driver {
  void* library = open_driver();
  RECOUP_DRIVER(error_string, cuGetErrorString);
  RECOUP_DRIVER(granularity, cuMemGetAllocationGranularity);
  RECOUP_DRIVER(reserve, cuMemAddressReserve);
  RECOUP_DRIVER(unreserve, cuMemAddressFree);
  RECOUP_DRIVER(create, cuMemCreate);
  RECOUP_DRIVER(release, cuMemRelease);
  RECOUP_DRIVER(map, cuMemMap);
  RECOUP_DRIVER(unmap, cuMemUnmap);
  RECOUP_DRIVER(set_access, cuMemSetAccess);
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

// Call it on a thread that is on the device. The driver needs the initialization that the runtime
// does at its first call that needs the device; cudaGetDevice is not such a call.
const Driver& started_driver(int device) {
  RECOUP_CUDA(cudaSetDevice, device);
  return driver();
}

void check(CUresult error, const char* call) {
  if (error != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver().error_string(error, &text);
    throw CudaError(str_cat(call, ": ", text != nullptr ? text : "an error unknown to the driver"));
  }
}

// Whether the device had enough memory for the call.
bool had_memory(CUresult error, const char* call) {
  if (error == CUDA_ERROR_OUT_OF_MEMORY) {
    return false;
  }
  check(error, call);
  return true;
}

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp memory{};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  memory.location.id = device;
  return memory;
}

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

class Cudart final : public Runtime {
 public:
  int device_count() override {
    int count = 0;
    RECOUP_CUDA(cudaGetDeviceCount, &count);
    if (count == 0) {
      fail(cudaErrorNoDevice, "cudaGetDeviceCount");
    }
    return count;
  }

  DeviceMemory memory(int device) override {
    const OnDevice on(device);
    const Apart apart;
    std::size_t free = 0;
    std::size_t total = 0;
    RECOUP_CUDA(cudaMemGetInfo, &free, &total);
    return {.free = Bytes(static_cast<std::int64_t>(free)),
            .total = Bytes(static_cast<std::int64_t>(total))};
  }

  void* allocate(int device, Bytes size) override {
    const OnDevice on(device);
    const Apart apart;
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
    const Apart apart;
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device);
    cudaFree(memory);
    cudaSetDevice(before);
  }

  Bytes granularity(int device) override {
    const OnDevice on(device);
    const CUmemAllocationProp kind = memory_of(device);
    std::size_t unit = 0;
    check(started_driver(device).granularity(&unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity");
    return Bytes(static_cast<std::int64_t>(unit));
  }

  void* reserve(int device, Bytes size) override {
    const OnDevice on(device);
    CUdeviceptr addresses = 0;
    check(
        started_driver(device).reserve(&addresses, static_cast<std::size_t>(size.count()), 0, 0, 0),
        "cuMemAddressReserve");
    return reinterpret_cast<void*>(addresses);
  }

  void unreserve(int /*device*/, void* addresses, Bytes size) noexcept override {
    driver().unreserve(address(addresses), static_cast<std::size_t>(size.count()));
  }

  bool map(int device, void* at, Bytes size) override {
    const OnDevice on(device);
    const Driver& cu = started_driver(device);
    const auto count = static_cast<std::size_t>(size.count());
    const CUmemAllocationProp kind = memory_of(device);
    CUmemGenericAllocationHandle memory = 0;
    if (!had_memory(cu.create(&memory, count, &kind, 0), "cuMemCreate")) {
      return false;
    }
    const CUresult mapped = cu.map(address(at), count, 0, memory, 0);
    cu.release(memory);  // it lives as long as the mapping now, if there is one
    if (!had_memory(mapped, "cuMemMap")) {
      return false;
    }
    CUmemAccessDesc access{};
    access.location = kind.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult accessible = cu.set_access(address(at), count, &access, 1);
    if (accessible != CUDA_SUCCESS) {
      cu.unmap(address(at), count);
      return had_memory(accessible, "cuMemSetAccess");
    }
    let_peers_in(device, at, count);
    return true;
  }

  // cudaDeviceEnablePeerAccess, on which PyTorch's copies between devices rely, does not cover
  // mapped memory. Devices that cannot get access are skipped.
  void let_peers_in(int device, void* at, std::size_t count) {
    int devices = 0;
    RECOUP_CUDA(cudaGetDeviceCount, &devices);
    for (int peer = 0; peer < devices; ++peer) {
      int can = 0;
      if (peer != device && cudaDeviceCanAccessPeer(&can, peer, device) == cudaSuccess &&
          can != 0) {
        CUmemAccessDesc access{};
        access.location = memory_of(peer).location;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        driver().set_access(address(at), count, &access, 1);
      }
    }
  }

  void unmap(int device, void* at, Bytes size) noexcept override {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    driver().unmap(address(at), static_cast<std::size_t>(size.count()));
    cudaSetDevice(before);
  }

  Stream create_stream(int device) override {
    const OnDevice on(device);
    cudaStream_t stream = nullptr;
    RECOUP_CUDA(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
    return {.handle = stream, .device = device};
  }

  void destroy_stream(Stream stream) noexcept override { cudaStreamDestroy(native(stream)); }

  Event create_event(int device, bool timed) override {
    const OnDevice on(device);
    const Apart apart;
    cudaEvent_t event = nullptr;
    RECOUP_CUDA(cudaEventCreateWithFlags, &event,
                timed ? cudaEventDefault : cudaEventDisableTiming);
    return {event};
  }

  void destroy_event(Event event) noexcept override {
    const Apart apart;
    cudaEventDestroy(native(event));
  }

  void record(Event event, Stream stream) override {
    const OnDevice on(stream.device);
    RECOUP_CUDA(cudaEventRecord, native(event), native(stream));
  }

  bool done(Event event) override {
    const Apart apart;
    const cudaError_t error = cudaEventQuery(native(event));
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(error, "cudaEventQuery");
    return true;
  }

  void synchronize(Event event) override {
    const Apart apart;
    RECOUP_CUDA(cudaEventSynchronize, native(event));
  }

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

  void copy_between(Stream stream, void* to, int to_device, const void* from, int from_device,
                    Bytes size) override {
    const OnDevice on(stream.device);
    RECOUP_CUDA(cudaMemcpyPeerAsync, to, to_device, from, from_device,
                static_cast<std::size_t>(size.count()), native(stream));
  }

  void* allocate_pinned(Bytes size) override {
    const Apart apart;
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

  void release_pinned(void* memory) noexcept override {
    const Apart apart;
    cudaFreeHost(memory);
  }

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

std::unique_ptr<Runtime> make_cudart() { return std::make_unique<Cudart>(); }

}  // namespace recoup::detail::cuda
