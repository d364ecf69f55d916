#ifdef RECOUP_WITH_CUDA
#include "csrc/torch/gpu/cuda_decorator.h"

#include <dlfcn.h>

#include <stdexcept>

namespace recoup::detail {

using namespace c10::cuda::CUDACachingAllocator;  // types of the forwarded methods

void CudaDecorator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  BudgetAllocator::recordStream(data, stream.unwrap());
}

ShareableHandle CudaDecorator::shareIpcHandle(void* memory) {
  require_sharable(memory);
  return inner().shareIpcHandle(memory);
}

#if RECOUP_CUDA_ALLOCATOR_KNOWS_CONTEXTS
std::shared_ptr<c10::GatheredContext> CudaDecorator::getContextForPointer(const void* memory) {
  return gpus().owns(memory) ? nullptr : inner().getContextForPointer(memory);
}
#endif

#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
void CudaDecorator::annotateMemory(const void* memory, const std::string& metadata) {
  if (!gpus().owns(memory)) {
    inner().annotateMemory(memory, metadata);
  }
}
#endif

cudaError_t CudaDecorator::memcpyAsync(void* to, int to_device, const void* from, int from_device,
                                       std::size_t count, cudaStream_t stream, bool peer_access) {
  // PyTorch copies on a stream of the source device.
  if (to_device != from_device &&
      gpus().copy_between({.handle = stream, .device = from_device}, to, to_device, from,
                          from_device, Bytes(static_cast<std::int64_t>(count)))) {
    return cudaSuccess;
  }
  return inner().memcpyAsync(to, to_device, from, from_device, count, stream, peer_access);
}

#if RECOUP_CUDA_ALLOCATOR_PLACES
c10::DataPtr CudaDecorator::allocateWithAddress(std::size_t size, void* address) {
  if (gpus().owns(address)) {
    throw std::runtime_error(
        "recoup: memory was requested at an address that a budget manages: request another "
        "address, or wait until after the scope");
  }
  return inner().allocateWithAddress(size, address);
}
#endif

void CudaDecorator::beginAllocateToPool(Device device, Pool pool,
                                        std::function<bool(cudaStream_t)> filter) {
  gpus().require_no_budget(device);
  inner().beginAllocateToPool(device, pool, std::move(filter));
  gpus().scopes().begin_capture();
}

void CudaDecorator::init(int device_count) { inner().init(device_count); }

double CudaDecorator::getMemoryFraction(Device device) { return inner().getMemoryFraction(device); }

void CudaDecorator::setMemoryFraction(double fraction, Device device) {
  inner().setMemoryFraction(fraction, device);
}

std::vector<StreamSegmentSize> CudaDecorator::getExpandableSegmentSizes(Device device) {
  return inner().getExpandableSegmentSizes(device);
}

void CudaDecorator::enable(bool value) { inner().enable(value); }

bool CudaDecorator::isEnabled() const { return inner().isEnabled(); }

void CudaDecorator::cacheInfo(Device device, std::size_t* largest_block) {
  inner().cacheInfo(device, largest_block);
}

SnapshotInfo CudaDecorator::snapshot(Pool pool, bool include_traces) {
  return inner().snapshot(pool, include_traces);
}

void CudaDecorator::endAllocateToPool(Device device, Pool pool) {
  inner().endAllocateToPool(device, pool);
  gpus().end_capture();
}

#if RECOUP_CUDA_ALLOCATOR_MARKS_CAPTURES
void CudaDecorator::markCaptureBegin(Device device) { inner().markCaptureBegin(device); }

void CudaDecorator::markCaptureEnd(Device device) { inner().markCaptureEnd(device); }
#endif

void CudaDecorator::releasePool(Device device, Pool pool) { inner().releasePool(device, pool); }

int CudaDecorator::getPoolUseCount(Device device, Pool pool) {
  return inner().getPoolUseCount(device, pool);
}

void CudaDecorator::createOrIncrefPool(Device device, Pool pool,
                                       std::shared_ptr<CUDAAllocator> allocator) {
  inner().createOrIncrefPool(device, pool, std::move(allocator));
}

void CudaDecorator::setUseOnOOM(Device device, Pool pool, bool use_on_oom) {
  inner().setUseOnOOM(device, pool, use_on_oom);
}

void CudaDecorator::setNoSplit(Device device, Pool pool) { inner().setNoSplit(device, pool); }

bool CudaDecorator::checkPoolLiveAllocations(Device device, Pool pool,
                                             const std::unordered_set<void*>& expected) {
  return inner().checkPoolLiveAllocations(device, pool, expected);
}

std::shared_ptr<void> CudaDecorator::getIpcDevPtr(std::string handle) {
  return inner().getIpcDevPtr(std::move(handle));
}

bool CudaDecorator::isHistoryEnabled() { return inner().isHistoryEnabled(); }

void CudaDecorator::recordHistory(bool enabled, CreateContextFn recorder, std::size_t most_entries,
                                  RecordContext when, bool clear,
                                  const std::vector<std::string>& skipped) {
  inner().recordHistory(enabled, recorder, most_entries, when, clear, skipped);
}

void CudaDecorator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  inner().recordAnnotation(metadata);
}

void CudaDecorator::pushCompileContext(std::string& metadata) {
  inner().pushCompileContext(metadata);
}

void CudaDecorator::popCompileContext() { inner().popCompileContext(); }

#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
bool CudaDecorator::supportsUserMetadata() { return inner().supportsUserMetadata(); }
#endif

void CudaDecorator::setUserMetadata(const std::string& metadata) {
  inner().setUserMetadata(metadata);
}

std::string CudaDecorator::getUserMetadata() { return inner().getUserMetadata(); }

void CudaDecorator::attachOutOfMemoryObserver(OutOfMemoryObserver observer) {
  inner().attachOutOfMemoryObserver(std::move(observer));
}

#if RECOUP_CUDA_ALLOCATOR_OBSERVES_REJECTIONS
void CudaDecorator::attachOomRejectionObserver(OomRejectionObserver observer) {
  inner().attachOomRejectionObserver(std::move(observer));
}
#endif

void CudaDecorator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  inner().attachAllocatorTraceTracker(std::move(tracker));
}

void CudaDecorator::enablePeerAccess(Device device, Device to) {
  inner().enablePeerAccess(device, to);
}

std::shared_ptr<AllocatorState> CudaDecorator::getCheckpointState(Device device, Pool pool) {
  return inner().getCheckpointState(device, pool);
}

CheckpointDelta CudaDecorator::setCheckpointPoolState(Device device, std::shared_ptr<State> state) {
  return inner().setCheckpointPoolState(device, std::move(state));
}

std::string CudaDecorator::name() { return inner().name(); }

// Looked up when it is needed, not when the library is loaded: PyTorch may have no CUDA.
std::atomic<CudaAllocator*>& cuda_allocator_slot() {
  constexpr const char* kLibrary = "libc10_cuda.so";
  constexpr const char* kSlot = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  void* const slot = library == nullptr ? nullptr : dlsym(library, kSlot);
  if (slot == nullptr) {
    throw std::runtime_error(str_cat("this PyTorch has no CUDA allocator: no symbol ", kSlot,
                                     " in ", kLibrary, ". Install a build of PyTorch with CUDA"));
  }
  return *static_cast<std::atomic<CudaAllocator*>*>(slot);
}

void decorate_cuda(Gpus& gpus, std::atomic<CudaAllocator*>& slot) {
  gpus.set_outside(std::make_unique<CudaMemory>(slot, *new CudaDecorator));
}

// A private pool belongs to a CUDA graph, whose kernels may use any address, or to a MemPool. The
// cudaMallocAsync allocator has no segments, and throws.
std::optional<std::vector<OutsideSegment>> CudaMemory::segments(int device) {
  std::vector<OutsideSegment> found;
  try {
    for (const auto& segment : inner().snapshot({0, 0}, false).segments) {
      if (segment.owner_private_pool_id != CudaDecorator::Pool{0, 0}) {
        return std::nullopt;
      }
      if (segment.device != device) {
        continue;
      }
      OutsideSegment& added = found.emplace_back();
      added.base = reinterpret_cast<const void*>(segment.address);
      added.extent = added.size = Bytes(static_cast<std::int64_t>(segment.total_size));
      const auto* at = static_cast<const char*>(added.base);
      for (const auto& block : segment.blocks) {
        if (block.allocated || block.active) {
          added.in_use.push_back(at);
        }
        at += block.size;
      }
    }
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  return found;
}

}  // namespace recoup::detail
#endif
