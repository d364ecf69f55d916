#include "tests/torch/test_device/memory.h"

#include <map>
#include <mutex>

#include "csrc/torch/gpu/budget_allocator.h"
#include "tests/core/cuda/cache.h"
#include "tests/torch/test_device/device.h"

namespace recoup::test_device {
namespace {

using detail::cuda::Cache;
using detail::cuda::Stream;

DeviceAllocator* filled_with = nullptr;

void fill_slot(DeviceAllocator* allocator) {
  filled_with = allocator;
  slot() = allocator;
  c10::SetAllocator(kType, allocator);
}

class CachingAllocator final : public DeviceAllocator {
 public:
  // As with PyTorch, memory of expandable segments has no base allocation that could be shared.
  explicit CachingAllocator(bool expandable) : expandable_(expandable) {}

  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = raw_alloc(size);
    return {memory, memory, raw_deleter(), c10::Device(kType, current_device())};
  }
  // As with PyTorch, this deleter uses the allocator itself and not the one in the slot.
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* memory) { filled_with->raw_delete(memory); };
  }
  // Copies on the host, after all streams have been synchronized.
  void copy_data(void* to, const void* from, std::size_t size) const override {
    fake().synchronize_all();
    std::memcpy(to, from, size);
  }
  bool initialized() override { return true; }
  void* raw_alloc(std::size_t size) override {
    return raw_alloc_with_stream(
        size, static_cast<CUstream_st*>(current_stream(current_device()).handle));
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}

  void* raw_alloc_with_stream(std::size_t size, CUstream_st* stream) override {
    if (size == 0) {
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    const int device = current_device();
    const Bytes bytes(static_cast<std::int64_t>(size));
    Cache& cache = caches_.try_emplace(device, fake(), device).first->second;
    void* const memory = cache.allocate(bytes, {.handle = stream, .device = device});
    if (memory == nullptr) {
      C10_THROW_ERROR(OutOfMemoryError, c10::str("out of memory. Tried to allocate ", size,
                                                 " bytes on fakegpu:", device));
    }
    return memory;
  }
  void raw_delete(void* memory) override {
    const std::lock_guard lock(mutex_);
    owner(memory).second.free(memory);
  }
  void* getBaseAllocation(void* memory, std::size_t* /*size*/) override {
    const std::lock_guard lock(mutex_);
    owner(memory);
    TORCH_CHECK(!expandable_, "Tensors of expandable segments cannot be shared");
    return memory;
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    // As with PyTorch, memory that was not allocated here is ignored.
    if (data.get() != nullptr && data.get_deleter() == raw_deleter()) {
      const std::lock_guard lock(mutex_);
      owner(data.get()).second.record_stream(data.get(), native_stream(stream));
    }
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override {
    const std::lock_guard lock(mutex_);
    for (auto& [device, cache] : caches_) {
      cache.empty();
    }
  }
  std::vector<detail::OutsideSegment> segments(int device) override {
    const std::lock_guard lock(mutex_);
    std::vector<detail::OutsideSegment> found;
    if (const auto cache = caches_.find(device); cache != caches_.end()) {
      for (const Cache::SegmentView& each : cache->second.segments()) {
        found.push_back(
            {.base = each.base, .extent = each.size, .size = each.size, .in_use = each.in_use});
      }
    }
    return found;
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    if (const auto found = caches_.find(device); found != caches_.end()) {
      constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
      stats.reserved_bytes[kAll].current = found->second.reserved().count();
      stats.allocated_bytes[kAll].current = found->second.used().count();
    }
    return stats;
  }

 private:
  std::pair<const int, Cache>& owner(const void* memory) {
    for (auto& each : caches_) {
      if (each.second.owns(memory)) {
        return each;
      }
    }
    TORCH_CHECK(false, "invalid device pointer: ", memory);
  }

  bool expandable_;
  std::mutex mutex_;
  std::map<int, Cache> caches_;  // by device
};

class DecoratedAllocator final : public detail::BudgetAllocator<DeviceAllocator> {
 public:
  std::vector<detail::OutsideSegment> segments(int device) override {
    return inner().segments(device);
  }
};

class DeviceMemory final : public detail::DecoratedMemory<DeviceAllocator> {
 public:
  using DecoratedMemory::DecoratedMemory;
  std::optional<std::vector<detail::OutsideSegment>> segments(int device) override {
    return inner().segments(device);
  }
};

}  // namespace

std::atomic<DeviceAllocator*>& slot() {
  static std::atomic<DeviceAllocator*> slot;
  return slot;
}

void use_caching_allocator(detail::Gpus& gpus, bool expandable) {
  fill_slot(new CachingAllocator(expandable));
  gpus.set_outside(std::make_unique<DeviceMemory>(slot(), *new DecoratedAllocator));
}

bool undecorated() { return slot() == filled_with && c10::GetAllocator(kType) == filled_with; }

}  // namespace recoup::test_device
