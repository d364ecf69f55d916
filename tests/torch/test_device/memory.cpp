#include "tests/torch/test_device/memory.h"

#include <map>
#include <mutex>
#include <unordered_map>

#include "csrc/cuda/cache.h"
#include "csrc/torch/budget_allocator.h"
#include "csrc/torch/pluggable.h"
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

// What both have in common.
class OwnAllocator : public DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = raw_alloc(size);
    return {memory, memory, raw_deleter(), c10::Device(kType, current_device())};
  }
  // Of PyTorch's allocator itself: it does not ask the slot.
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* memory) { filled_with->raw_delete(memory); };
  }
  // Not in the order of any stream, but that of the host.
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
};

class CachingAllocator final : public OwnAllocator {
 public:
  // Expandable segments have no base that could be told, as PyTorch's.
  explicit CachingAllocator(bool expandable) : expandable_(expandable) {}

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
    // As PyTorch's: what it has not given is left alone.
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

class PluggableAllocator final : public OwnAllocator {
 public:
  void* raw_alloc_with_stream(std::size_t size, CUstream_st* stream) override {
    const int device = current_device();
    void* const memory = recoup_cuda_malloc(static_cast<ssize_t>(size), device, stream);
    const std::lock_guard lock(mutex_);
    given_.emplace(memory, Given{.size = size, .device = device, .stream = stream});
    return memory;
  }
  void raw_delete(void* memory) override {
    Given given{};
    {
      const std::lock_guard lock(mutex_);
      const auto found = given_.find(memory);
      TORCH_CHECK(found != given_.end(), "Trying to free a pointer not allocated here");
      given = found->second;
      given_.erase(found);
    }
    recoup_cuda_free(memory, static_cast<ssize_t>(given.size), given.device, given.stream);
  }
  void* getBaseAllocation(void* memory, std::size_t* /*size*/) override { return memory; }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    recoup_cuda_record_stream(data.get(), native_stream(stream).handle);
  }
  void emptyCache(c10::MempoolId_t /*pool*/) override { recoup_cuda_empty_cache(); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    TORCH_CHECK(false, "CUDAPluggableAllocator does not yet support getDeviceStats.");
  }

 private:
  struct Given {
    std::size_t size;
    int device;
    void* stream;
  };

  std::mutex mutex_;
  std::unordered_map<void*, Given> given_;
};

}  // namespace

std::atomic<DeviceAllocator*>& slot() {
  static std::atomic<DeviceAllocator*> slot;
  return slot;
}

void use_caching_allocator(detail::Gpus& gpus, bool expandable) {
  fill_slot(new CachingAllocator(expandable));
  gpus.set_outside(std::make_unique<detail::DecoratedMemory<DeviceAllocator>>(
      slot(), *new detail::BudgetAllocator<DeviceAllocator>));
}

void use_pluggable_allocator(detail::Gpus& gpus) {
  detail::use_pluggable(gpus);
  fill_slot(new PluggableAllocator);
}

bool undecorated() { return slot() == filled_with && c10::GetAllocator(kType) == filled_with; }

}  // namespace recoup::test_device
