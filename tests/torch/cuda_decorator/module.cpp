// _test_cuda_decorator: CudaDecorator over a recording allocator, or over PyTorch's own, with fake
// scopes and a fake CUDA runtime. Changes the whole process.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>

#include <map>

#include "csrc/torch/gpu/cuda_decorator.h"
#include "csrc/torch/gpu/install_gpus.h"
#include "tests/core/cuda/fake_cuda.h"
#include "tests/core/cuda/fake_scope.h"
#include "tests/torch/cuda_decorator/recording.h"

namespace recoup::test_cuda {
namespace {

using Address = std::uintptr_t;
using detail::cuda::FakeCuda;
using detail::cuda::FakeScope;

constexpr auto kCuda = c10::DeviceType::CUDA;

void* pointer(Address address) { return reinterpret_cast<void*>(address); }
Address address(const void* pointer) { return reinterpret_cast<Address>(pointer); }

// Device 0 and its default stream, without a driver.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kCuda; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kCuda, 0}; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void* getStreamNativeHandle(const c10::Stream /*stream*/) const override { return nullptr; }
};

FakeCuda* cuda = nullptr;
Recording* recording = nullptr;
std::atomic<CudaAllocator*>* the_slot = nullptr;
CudaAllocator* before = nullptr;
std::map<int, std::shared_ptr<FakeScope>> scopes;

void install(std::atomic<CudaAllocator*>& slot) {
  static const Guard guard;
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(kCuda)] = &guard;
  auto runtime = std::make_unique<FakeCuda>(FakeCuda::Options{.devices = 2});
  cuda = runtime.get();
  the_slot = &slot;
  before = slot;
  detail::decorate_cuda(detail::install_gpus(kCuda, std::move(runtime)), slot);
}

void install_over_recording() {
  static std::atomic<CudaAllocator*> slot;
  slot = recording = new Recording;
  c10::SetAllocator(kCuda, recording, 100);  // a higher priority than PyTorch's allocator
  install(slot);
}

CudaAllocator& allocator() { return *the_slot->load(); }

// Returns "before" for the allocator that was decorated, "decorated", or "another".
std::string found(const c10::Allocator* allocator) {
  return allocator == before                                                ? "before"
         : dynamic_cast<const detail::CudaDecorator*>(allocator) != nullptr ? "decorated"
                                                                            : "another";
}

void enter(int device) {
  scopes[device] = std::make_shared<FakeScope>(Bytes(1 << 10));
  detail::gpus().enter(device, scopes[device]);
}

struct Data {
  c10::DataPtr data;
};

c10::cuda::CUDAStream stream() {
  return c10::cuda::CUDAStream(c10::Stream(c10::Stream::DEFAULT, c10::Device(kCuda, 0)));
}

// Calls every virtual method of c10::Allocator, c10::DeviceAllocator and CUDAAllocator once.
void call_all() {
  CudaAllocator& all = allocator();
  char byte = 0;
  void* const memory = &byte;
  std::string text = "text";
  std::size_t largest = 0;
  const Pool pool{0, 1};
  (void)all.allocate(1);
  (void)all.is_simple_data_ptr({});
  (void)all.raw_deleter();
  all.copy_data(memory, memory, 0);
  (void)all.initialized();
  all.emptyCache(pool);
  {
    const detail::LentData lent(memory, &Recording::deleter, c10::Device(kCuda, 0));
    all.recordStream(*lent, stream().unwrap());
    all.recordStream(*lent, stream());
  }
  (void)all.getDeviceStats(0);
  all.resetAccumulatedStats(0);
  all.resetPeakStats(0);
  (void)all.getMemoryInfo(0);
  (void)all.raw_alloc(1);
  (void)all.raw_alloc_with_stream(1, nullptr);
  all.raw_delete(memory);
  all.init(1);
  (void)all.getMemoryFraction(0);
  all.setMemoryFraction(1, 0);
  (void)all.getExpandableSegmentSizes(0);
  all.enable(true);
  (void)all.isEnabled();
  all.cacheInfo(0, &largest);
  (void)all.getBaseAllocation(memory, &largest);
  (void)all.snapshot(pool, false);
  all.beginAllocateToPool(0, pool, {});
  all.endAllocateToPool(0, pool);
#if RECOUP_CUDA_ALLOCATOR_MARKS_CAPTURES
  all.markCaptureBegin(0);
  all.markCaptureEnd(0);
#endif
  all.releasePool(0, pool);
  (void)all.getPoolUseCount(0, pool);
  all.createOrIncrefPool(0, pool, nullptr);
  all.setUseOnOOM(0, pool, true);
  all.setNoSplit(0, pool);
  (void)all.checkPoolLiveAllocations(0, pool, {});
  (void)all.shareIpcHandle(memory);
  (void)all.getIpcDevPtr(text);
  (void)all.isHistoryEnabled();
#if RECOUP_CUDA_ALLOCATOR_KNOWS_CONTEXTS
  (void)all.getContextForPointer(memory);
#endif
  all.recordHistory(false, nullptr, 0, RecordContext::NEVER, false, {});
  all.recordAnnotation({});
  all.pushCompileContext(text);
  all.popCompileContext();
#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
  (void)all.supportsUserMetadata();
  all.annotateMemory(memory, text);
#endif
  all.setUserMetadata(text);
  (void)all.getUserMetadata();
  all.attachOutOfMemoryObserver({});
#if RECOUP_CUDA_ALLOCATOR_OBSERVES_REJECTIONS
  all.attachOomRejectionObserver({});
#endif
  all.attachAllocatorTraceTracker({});
  all.enablePeerAccess(0, 1);
  (void)all.memcpyAsync(memory, 0, memory, 0, 0, nullptr, true);
  (void)all.getCheckpointState(0, pool);
  (void)all.setCheckpointPoolState(0, nullptr);
#if RECOUP_CUDA_ALLOCATOR_PLACES
  (void)all.allocateWithAddress(1, memory);
#endif
  (void)all.name();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("install_over_recording", &install_over_recording);
  module.def("install_over_pytorch", [] { install(detail::cuda_allocator_slot()); });
  module.def("in_slot", [] { return found(the_slot->load()); });
  module.def("in_table", [] { return found(c10::GetAllocator(kCuda)); });
  module.def("replace", [] { *the_slot = new Recording; });
  module.def("enter", &enter);
  module.def("leave", [](int device) { detail::gpus().leave(device); });
  module.def("used", [](int device) { return scopes.at(device)->used().count(); });
  module.def("streams", [](int device) { return scopes.at(device)->streams().size(); });
  // Whether the memory is registered as wrapped by code outside of recoup.
  module.def("outside_owns", [](Address memory) {
    return detail::gpus().outside().owns({pointer(memory), c10::DeviceType::CUDA});
  });
  module.def("copies_between", [] { return cuda->copies_between(); });
  module.def("begin_capture", [] { cuda->begin_capture({}); });
  module.def("log", [] { return recording->take_log(); });
  module.def("deleted", [] { return Recording::take_deleted().size(); });

  module.def("call_all", &call_all);
  module.def("name", [] { return allocator().name(); });
  module.def("is_enabled", [] { return allocator().isEnabled(); });
  module.def("is_initialized", [] { return allocator().initialized(); });
  py::class_<Data>(module, "Data").def_property_readonly("address", [](const Data& self) {
    return address(self.data.get());
  });
  module.def("allocate", [](std::size_t size) { return Data{allocator().allocate(size)}; });
  module.def("raw_alloc", [](std::size_t size) { return address(allocator().raw_alloc(size)); });
  module.def("raw_alloc_with_stream", [](std::size_t size) {
    return address(allocator().raw_alloc_with_stream(size, nullptr));
  });
  module.def("raw_delete", [](Address memory) { allocator().raw_delete(pointer(memory)); });
  module.def("raw_deallocate", [](Address memory) { allocator().raw_deallocate(pointer(memory)); });
  module.def("record_stream",
             [](const Data& data) { allocator().recordStream(data.data, stream()); });
  module.def("record_stream_by_hand", [](Address memory) {
    const detail::LentData lent(pointer(memory), allocator().raw_deleter(), c10::Device(kCuda, 0));
    allocator().recordStream(*lent, stream());
  });
  module.def("base", [](Address memory) {
    return address(allocator().getBaseAllocation(pointer(memory), nullptr));
  });
  module.def("share", [](Address memory) { (void)allocator().shareIpcHandle(pointer(memory)); });
#if RECOUP_CUDA_ALLOCATOR_KNOWS_CONTEXTS
  module.def("context",
             [](Address memory) { (void)allocator().getContextForPointer(pointer(memory)); });
#endif
#if RECOUP_CUDA_ALLOCATOR_PLACES
  module.def("allocate_at",
             [](Address memory) { (void)allocator().allocateWithAddress(1, pointer(memory)); });
#endif
  module.def("copy", [](Address to, int to_device, Address from, int from_device) {
    (void)allocator().memcpyAsync(pointer(to), to_device, pointer(from), from_device, 1, nullptr,
                                  true);
  });
  module.def("begin_pool", [](int device) {
    allocator().beginAllocateToPool(static_cast<Device>(device), {0, 1}, {});
  });
#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
  module.def("annotate", [](Address memory) { allocator().annotateMemory(pointer(memory), ""); });
#endif
}

}  // namespace
}  // namespace recoup::test_cuda
