// The decorator of PyTorch's CUDA allocator.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/torch/gpu/budget_allocator.h"
#include "csrc/torch/gpu/cuda_caching_allocator.h"
#include "recoup/api.h"

namespace recoup::detail {

// The remaining methods are in BudgetAllocator. If PyTorch adds a method that is not pure, its base
// class would answer it instead of PyTorch's allocator: test_cuda_decorator.py fails then.
class RECOUP_API CudaDecorator final : public BudgetAllocator<CudaAllocator> {
 public:
  using Device = c10::DeviceIndex;
  using Pool = c10::MempoolId_t;
  using State = c10::cuda::CUDACachingAllocator::AllocatorState;

  // ---- handled by the owner of an address ----
  using BudgetAllocator::recordStream;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* memory) override;
#if RECOUP_CUDA_ALLOCATOR_KNOWS_CONTEXTS
  // Null for memory of a budget: no context is recorded for it.
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* memory) override;
#endif
#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
  void annotateMemory(const void* memory, const std::string& metadata) override;
#endif
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t count, cudaStream_t stream, bool peer_access) override;
#if RECOUP_CUDA_ALLOCATOR_PLACES
  c10::DataPtr allocateWithAddress(std::size_t size, void* address) override;
#endif

  // ---- refused in a budget ----
  void beginAllocateToPool(Device device, Pool pool,
                           std::function<bool(cudaStream_t)> filter) override;

  // ---- passed on ----
  void init(int device_count) override;
  double getMemoryFraction(Device device) override;
  void setMemoryFraction(double fraction, Device device) override;
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      Device device) override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void cacheInfo(Device device, std::size_t* largest_block) override;
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(Pool pool, bool include_traces) override;
  void endAllocateToPool(Device device, Pool pool) override;
#if RECOUP_CUDA_ALLOCATOR_MARKS_CAPTURES
  void markCaptureBegin(Device device) override;
  void markCaptureEnd(Device device) override;
#endif
  void releasePool(Device device, Pool pool) override;
  int getPoolUseCount(Device device, Pool pool) override;
  void createOrIncrefPool(Device device, Pool pool,
                          std::shared_ptr<CUDAAllocator> allocator) override;
  void setUseOnOOM(Device device, Pool pool, bool use_on_oom) override;
  void setNoSplit(Device device, Pool pool) override;
  bool checkPoolLiveAllocations(Device device, Pool pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled, c10::cuda::CUDACachingAllocator::CreateContextFn recorder,
                     std::size_t most_entries, c10::cuda::CUDACachingAllocator::RecordContext when,
                     bool clear, const std::vector<std::string>& skipped) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) override;
  void pushCompileContext(std::string& metadata) override;
  void popCompileContext() override;
#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
  bool supportsUserMetadata() override;
#endif
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override;
#if RECOUP_CUDA_ALLOCATOR_OBSERVES_REJECTIONS
  void attachOomRejectionObserver(
      c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) override;
#endif
  void attachAllocatorTraceTracker(
      c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override;
  void enablePeerAccess(Device device, Device to) override;
  std::shared_ptr<State> getCheckpointState(Device device, Pool pool) override;
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      Device device, std::shared_ptr<State> state) override;
  std::string name() override;
};

class CudaMemory final : public DecoratedMemory<CudaAllocator> {
 public:
  using DecoratedMemory::DecoratedMemory;
  std::optional<std::vector<OutsideSegment>> segments(int device) override;
};

// PyTorch's pointer to its allocator. Throws std::runtime_error if the loaded PyTorch has no CUDA.
[[nodiscard]] RECOUP_API std::atomic<CudaAllocator*>& cuda_allocator_slot();

// Makes the allocator in the slot the memory outside of budgets. While a budget exists, the slot
// holds a decorator of it. Both objects that this makes are never destroyed.
RECOUP_API void decorate_cuda(Gpus& gpus, std::atomic<CudaAllocator*>& slot);

}  // namespace recoup::detail
