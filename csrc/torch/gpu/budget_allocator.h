// The decorator of a device's allocator. In scopes it passes requests to the budget, and all others
// to PyTorch's allocator, as without recoup.
//
//   torch -> slot -> BudgetAllocator -> the budget that wants the request, or owns the address
//                                    -> inner(): PyTorch's allocator
//
// A template, so that CUDA and the device that replaces it in tests run the same code. Base is an
// abstract c10::DeviceAllocator with raw_alloc, raw_alloc_with_stream, raw_delete and
// getBaseAllocation, as in PyTorch's interface of CUDA allocators.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"
#include "csrc/torch/gpu/gpus.h"
#include "csrc/torch/gpu/outside_memory.h"

struct CUstream_st;  // CUDA's, without its headers

namespace recoup::detail {

// Puts an allocator into PyTorch's table with the lowest priority that succeeds. This is the
// priority of the current entry, which differs between versions of PyTorch. Code that may replace
// the current entry may then replace recoup's, too.
inline void put_in_table(c10::DeviceType type, c10::Allocator& allocator) {
  for (int priority = 0; c10::GetAllocator(type) != &allocator; ++priority) {
    RECOUP_CHECK(priority <= std::numeric_limits<std::uint8_t>::max());
    c10::SetAllocator(type, &allocator, static_cast<std::uint8_t>(priority));
  }
}

// A DataPtr that does not own its memory.
class LentData {
 public:
  LentData(void* memory, c10::DeleterFnPtr deleter, c10::Device device)
      : data_(memory, memory, deleter, device) {}
  ~LentData() { data_.release_context(); }
  LentData(const LentData&) = delete;
  LentData& operator=(const LentData&) = delete;

  [[nodiscard]] const c10::DataPtr& operator*() const { return data_; }

 private:
  c10::DataPtr data_;
};

// Never destroyed: storages keep a pointer to the allocator that made them, and a thread may have
// loaded the pointer from the slot just before the allocator was removed. Thread safe.
template <class Base>
class BudgetAllocator : public Base {
 public:
  // To be called before the first request.
  void set_inner(Base& inner) { inner_.store(&inner, std::memory_order_release); }
  [[nodiscard]] Base& inner() const { return *inner_.load(std::memory_order_acquire); }

  // c10::Allocator
  c10::DataPtr allocate(std::size_t size) override {
    const Place place = current_place();
    if (void* const memory = take(size, place)) {
      return {memory, memory, &gpu_delete, place.device};
    }
    return inner().allocate(size);
  }
  // PyTorch uses the deleter in two ways: to free what raw_allocate() returned, which may be a
  // budget's memory; and to find out whether a storage comes from its allocator (the graphs of
  // torch.compile do this), which never happens in a scope.
  c10::DeleterFnPtr raw_deleter() const override {
    return gpus().in_budget(current_device().index()) ? &delete_by_owner : inner().raw_deleter();
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return inner().is_simple_data_ptr(data);
  }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    inner().copy_data(to, from, size);
  }

  // c10::DeviceAllocator
  bool initialized() override { return inner().initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { inner().emptyCache(pool); }
  using Base::recordStream;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (gpus().record_stream(data.get(), native(stream))) {
      return;
    }
    if (data.get_deleter() == &delete_by_owner) {  // made with raw_deleter()
      inner().recordStream(*LentData(data.get(), inner().raw_deleter(), data.device()), stream);
      return;
    }
    inner().recordStream(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return inner().getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    inner().resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { inner().resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return inner().getMemoryInfo(device);
  }

  // Base
  void* raw_alloc(std::size_t size) override {
    void* const memory = take(size, current_place());
    return memory != nullptr ? memory : inner().raw_alloc(size);
  }
  void* raw_alloc_with_stream(std::size_t size, CUstream_st* stream) override {
    void* const memory = take(size, {.device = current_device(), .stream = stream});
    return memory != nullptr ? memory : inner().raw_alloc_with_stream(size, stream);
  }
  void raw_delete(void* memory) override {
    if (!gpus().free(memory)) {
      inner().raw_delete(memory);
    }
  }
  void* getBaseAllocation(void* memory, std::size_t* size) override {
    require_sharable(memory);
    return inner().getBaseAllocation(memory, size);
  }

 protected:
  // Memory of a budget has no handle for another process: throws std::runtime_error for it.
  static void require_sharable(const void* memory) {
    if (gpus().owns(memory)) {
      throw std::runtime_error(cuda::no_sharing_from_budget());
    }
  }

 private:
  struct Place {
    c10::Device device;
    void* stream;
  };
  static c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(gpus().type()); }
  static c10::Device current_device() { return guard().getDevice(); }
  static void* native(const c10::Stream& stream) { return guard().getStreamNativeHandle(stream); }
  static Place current_place() {
    const c10::impl::VirtualGuardImpl here = guard();
    const c10::Device device = here.getDevice();
    return {.device = device, .stream = here.getStreamNativeHandle(here.getStream(device))};
  }
  // Null if the request belongs to no budget.
  static void* take(std::size_t size, const Place& place) {
    const int device = place.device.index();
    return size == 0 ? nullptr
                     : gpus().allocate(Bytes(static_cast<std::int64_t>(size)), device,
                                       {.handle = place.stream, .device = device});
  }
  static void delete_by_owner(void* memory) {
    if (!gpus().free(memory)) {
      gpus().outside().free(memory);
    }
  }

  std::atomic<Base*> inner_{nullptr};
};

// PyTorch's own allocator as the memory outside of budgets. `slot`: PyTorch's pointer to it. A
// subclass for each Base lists its segments.
template <class Base>
class DecoratedMemory : public OutsideMemory {
 public:
  // Both references must be valid until the process ends.
  DecoratedMemory(std::atomic<Base*>& slot, BudgetAllocator<Base>& decorator)
      : slot_(slot), decorator_(decorator) {}

  // Called under a lock, like detach(). If other code has put its allocator over the decorator,
  // that allocator passes requests on, so the decorator is still in place. Putting it into the slot
  // again would make it its own inner allocator.
  void attach() override {
    if (attached_) {
      return;
    }
    Base* inner = slot_.load();
    do {
      RECOUP_CHECK(inner != nullptr, "PyTorch has no allocator");
      decorator_.set_inner(*inner);
    } while (!slot_.compare_exchange_weak(inner, &decorator_));
    replace_in_table(inner, &decorator_);
    attached_ = true;
  }
  void detach() override {
    Base* found = &decorator_;
    if (attached_ && slot_.compare_exchange_strong(found, &decorator_.inner())) {
      replace_in_table(&decorator_, &decorator_.inner());
      attached_ = false;
    }
  }
  c10::Allocator* allocator_in_scopes() override { return &decorator_; }

  void* allocate(Bytes size, int device, cuda::Stream stream) override {
    const c10::DeviceGuard on(c10::Device(gpus().type(), static_cast<c10::DeviceIndex>(device)));
    try {
      return inner().raw_alloc_with_stream(static_cast<std::size_t>(size.count()),
                                           static_cast<CUstream_st*>(stream.handle));
    } catch (const c10::OutOfMemoryError&) {
      return nullptr;
    }
  }
  void free(void* memory) override { inner().raw_delete(memory); }
  // The deleter identifies the owner. For memory that other code wrapped, only getBaseAllocation()
  // is left, which fails for foreign memory and for expandable segments.
  bool owns(const c10::DataPtr& data) override {
    if (data.get_deleter() == inner().raw_deleter()) {
      return true;
    }
    try {
      return inner().getBaseAllocation(data.get(), nullptr) != nullptr;
    } catch (const c10::Error&) {
      return false;
    }
  }
  // PyTorch's allocator throws for memory that it has not given.
  void record_stream(void* memory, const c10::Stream& stream) override {
    try {
      inner().recordStream(*LentData(memory, inner().raw_deleter(), stream.device()), stream);
    } catch (const c10::AcceleratorError&) {
      throw;
    } catch (const c10::Error&) {
      return;
    }
  }
  void empty_cache() override {
    if (inner().initialized()) {
      inner().emptyCache({0, 0});
    }
  }
  Usage usage(int device) override {
    if (!inner().initialized()) {
      return {.reserved = Bytes(0), .used = Bytes(0)};
    }
    const auto current = [](const c10::CachingAllocator::StatArray& stats) {
      return Bytes(
          stats[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current);
    };
    try {
      const auto stats = inner().getDeviceStats(static_cast<c10::DeviceIndex>(device));
      return {.reserved = current(stats.reserved_bytes), .used = current(stats.allocated_bytes)};
    } catch (const c10::Error& error) {
      throw std::runtime_error(
          str_cat("recoup: PyTorch's allocator of GPU ", device,
                  " does not report how much memory it holds, so a budget cannot count it: ",
                  error.what_without_backtrace(), ". Use another allocator, or no budget"));
    }
  }

 protected:
  [[nodiscard]] Base& inner() const { return attached_ ? decorator_.inner() : *slot_.load(); }

 private:
  // Some code reads PyTorch's table of allocators instead of the slot: torch.accelerator, and
  // storages that are made without bytes. Another allocator in the table is left there.
  static void replace_in_table(c10::Allocator* from, c10::Allocator* to) {
    if (c10::GetAllocator(gpus().type()) == from) {
      put_in_table(gpus().type(), *to);
    }
  }

  std::atomic<Base*>& slot_;
  BudgetAllocator<Base>& decorator_;
  std::atomic<bool> attached_{false};
};

}  // namespace recoup::detail
