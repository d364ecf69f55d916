// A CUDA allocator without CUDA that records its calls.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/torch/gpu/cuda_caching_allocator.h"

namespace recoup::test_cuda {

using detail::CudaAllocator;
using namespace c10::cuda::CUDACachingAllocator;
using Device = c10::DeviceIndex;
using Pool = c10::MempoolId_t;

// Overrides every virtual method, in the order of PyTorch's headers. Each method logs its name and
// returns a value that no default returns.
class Recording final : public CudaAllocator {
 public:
  [[nodiscard]] std::vector<std::string> take_log() const { return std::exchange(log_, {}); }
  // The deleter of all memory from this allocator. It only records the call.
  static void deleter(void* memory) { deleted_.push_back(memory); }
  static std::vector<void*> take_deleted() { return std::exchange(deleted_, {}); }

  // c10::Allocator
  c10::DataPtr allocate(std::size_t size) override {
    put("allocate");
    void* const memory = size == 0 ? nullptr : next();
    return {memory, memory, &deleter, c10::Device(c10::DeviceType::CUDA, 0)};
  }
  bool is_simple_data_ptr(const c10::DataPtr& /*data*/) const override {
    put("is_simple_data_ptr");
    return false;
  }
  c10::DeleterFnPtr raw_deleter() const override {
    put("raw_deleter");
    return &deleter;
  }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*size*/) const override {
    put("copy_data");
  }

  // c10::DeviceAllocator
  bool initialized() override { return put("initialized"); }
  void emptyCache(Pool /*pool*/) override { put("emptyCache"); }
  void recordStream(const c10::DataPtr& data, c10::Stream /*stream*/) override {
    put(data.get_deleter() == &deleter ? "recordStream" : "recordStream of others");
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Device /*device*/) override {
    put("getDeviceStats");
    return {};
  }
  void resetAccumulatedStats(Device /*device*/) override { put("resetAccumulatedStats"); }
  void resetPeakStats(Device /*device*/) override { put("resetPeakStats"); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(Device /*device*/) override {
    put("getMemoryInfo");
    return {};
  }

  // CUDAAllocator
  void* raw_alloc(std::size_t /*size*/) override {
    put("raw_alloc");
    return next();
  }
  void* raw_alloc_with_stream(std::size_t /*size*/, cudaStream_t /*stream*/) override {
    put("raw_alloc_with_stream");
    return next();
  }
  void raw_delete(void* /*memory*/) override { put("raw_delete"); }
  void init(int /*device_count*/) override { put("init"); }
  double getMemoryFraction(Device /*device*/) override { return put("getMemoryFraction"); }
  void setMemoryFraction(double /*fraction*/, Device /*device*/) override {
    put("setMemoryFraction");
  }
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(Device /*device*/) override {
    put("getExpandableSegmentSizes");
    return {};
  }
  void enable(bool /*value*/) override { put("enable"); }
  bool isEnabled() const override { return put("isEnabled"); }
  void cacheInfo(Device /*device*/, std::size_t* /*largest*/) override { put("cacheInfo"); }
  void* getBaseAllocation(void* memory, std::size_t* /*size*/) override {
    put("getBaseAllocation");
    return memory;
  }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    recordStream(data, stream.unwrap());
  }
  SnapshotInfo snapshot(Pool /*pool*/, bool /*traces*/) override {
    put("snapshot");
    return {};
  }
  void beginAllocateToPool(Device /*device*/, Pool /*pool*/,
                           std::function<bool(cudaStream_t)> /*filter*/) override {
    put("beginAllocateToPool");
  }
  void endAllocateToPool(Device /*device*/, Pool /*pool*/) override { put("endAllocateToPool"); }
#if RECOUP_CUDA_ALLOCATOR_MARKS_CAPTURES
  void markCaptureBegin(Device /*device*/) override { put("markCaptureBegin"); }
  void markCaptureEnd(Device /*device*/) override { put("markCaptureEnd"); }
#endif
  void releasePool(Device /*device*/, Pool /*pool*/) override { put("releasePool"); }
  int getPoolUseCount(Device /*device*/, Pool /*pool*/) override { return put("getPoolUseCount"); }
  void createOrIncrefPool(Device /*device*/, Pool /*pool*/,
                          std::shared_ptr<CUDAAllocator> /*allocator*/) override {
    put("createOrIncrefPool");
  }
  void setUseOnOOM(Device /*device*/, Pool /*pool*/, bool /*use*/) override { put("setUseOnOOM"); }
  void setNoSplit(Device /*device*/, Pool /*pool*/) override { put("setNoSplit"); }
  bool checkPoolLiveAllocations(Device /*device*/, Pool /*pool*/,
                                const std::unordered_set<void*>& /*expected*/) override {
    return put("checkPoolLiveAllocations");
  }
  ShareableHandle shareIpcHandle(void* /*memory*/) override {
    put("shareIpcHandle");
    return {};
  }
  std::shared_ptr<void> getIpcDevPtr(std::string /*handle*/) override {
    put("getIpcDevPtr");
    return {};
  }
  bool isHistoryEnabled() override { return put("isHistoryEnabled"); }
#if RECOUP_CUDA_ALLOCATOR_KNOWS_CONTEXTS
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* /*memory*/) override {
    put("getContextForPointer");
    return {};
  }
#endif
  void recordHistory(bool /*enabled*/, CreateContextFn /*recorder*/, std::size_t /*most*/,
                     RecordContext /*when*/, bool /*clear*/,
                     const std::vector<std::string>& /*skipped*/) override {
    put("recordHistory");
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& /*data*/) override {
    put("recordAnnotation");
  }
  void pushCompileContext(std::string& /*data*/) override { put("pushCompileContext"); }
  void popCompileContext() override { put("popCompileContext"); }
#if RECOUP_CUDA_ALLOCATOR_ANNOTATES
  bool supportsUserMetadata() override { return put("supportsUserMetadata"); }
  void annotateMemory(const void* /*memory*/, const std::string& /*metadata*/) override {
    put("annotateMemory");
  }
#endif
  void setUserMetadata(const std::string& /*metadata*/) override { put("setUserMetadata"); }
  std::string getUserMetadata() override {
    put("getUserMetadata");
    return "recorded";
  }
  void attachOutOfMemoryObserver(OutOfMemoryObserver /*observer*/) override {
    put("attachOutOfMemoryObserver");
  }
#if RECOUP_CUDA_ALLOCATOR_OBSERVES_REJECTIONS
  void attachOomRejectionObserver(OomRejectionObserver /*observer*/) override {
    put("attachOomRejectionObserver");
  }
#endif
  void attachAllocatorTraceTracker(AllocatorTraceTracker /*tracker*/) override {
    put("attachAllocatorTraceTracker");
  }
  void enablePeerAccess(Device /*device*/, Device /*to*/) override { put("enablePeerAccess"); }
  cudaError_t memcpyAsync(void* /*to*/, int /*to_device*/, const void* /*from*/,
                          int /*from_device*/, std::size_t /*count*/, cudaStream_t /*stream*/,
                          bool /*peer_access*/) override {
    put("memcpyAsync");
    return cudaErrorNotReady;
  }
  std::shared_ptr<AllocatorState> getCheckpointState(Device /*device*/, Pool /*pool*/) override {
    put("getCheckpointState");
    return {};
  }
  CheckpointDelta setCheckpointPoolState(Device /*device*/,
                                         std::shared_ptr<AllocatorState> /*state*/) override {
    put("setCheckpointPoolState");
    return {};
  }
#if RECOUP_CUDA_ALLOCATOR_PLACES
  c10::DataPtr allocateWithAddress(std::size_t /*size*/, void* address) override {
    put("allocateWithAddress");
    return {address, address, &deleter, c10::Device(c10::DeviceType::CUDA, 0)};
  }
#endif
  std::string name() override {
    put("name");
    return "recording";
  }

 private:
  bool put(const char* name) const {
    log_.emplace_back(name);
    return true;
  }
  void* next() { return &memory_[used_++ % sizeof memory_]; }

  mutable std::vector<std::string> log_;
  char memory_[64] = {};
  std::size_t used_ = 0;
  static inline std::vector<void*> deleted_;
};

}  // namespace recoup::test_cuda
