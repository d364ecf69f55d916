#include "csrc/cuda/allocator.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {

Allocator::Allocator(std::unique_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

Allocator::Device& Allocator::device_at(int index) {
  const auto found = devices_.find(index);
  if (found != devices_.end()) {
    return found->second;
  }
  const int count = runtime_->device_count();
  if (index < 0 || index >= count) {
    throw CudaError(str_cat("there is no device cuda:", index, "; there are ", count));
  }
  return devices_.try_emplace(index, *runtime_, index).first->second;
}

std::shared_ptr<Scope> Allocator::scope_for(int device, Bytes size) const {
  const auto found = scopes_.find(device);
  if (found == scopes_.end() || found->second.empty()) {
    return nullptr;
  }
  const Entry& last = found->second.back();
  return last.open && last.scope->wants(size) ? last.scope : nullptr;
}

Allocator::Found Allocator::find_scope(const void* memory) const {
  for (const auto& [device, entries] : scopes_) {
    for (const Entry& entry : entries) {
      if (entry.scope->owns(memory)) {
        return {.scope = entry.scope, .device = device};
      }
    }
  }
  return {};
}

void* Allocator::allocate_outside(Device& device, Bytes size, Stream stream) {
  if (device.pools.filling()) {
    // Making room would wait for the device, on which a graph may be captured.
    return device.cache.allocate(size, stream, Cache::Shortage::kFail);
  }
  void* const memory = device.cache.allocate(size, stream);
  if (memory != nullptr) {
    return memory;
  }
  device.pools.give_back();
  return device.cache.allocate(size, stream);
}

void* Allocator::allocate(Bytes size, int device, Stream stream) {
  if (size == Bytes(0)) {
    return nullptr;
  }
  std::shared_ptr<Scope> scope;
  {
    const std::lock_guard lock(mutex_);
    Device& there = device_at(device);
    if (Cache* const pool = there.pools.filled_by(stream); pool != nullptr) {
      void* const memory = pool->allocate(size, stream, Cache::Shortage::kFail);
      measure(device);
      return memory;
    }
    if (runtime_->capturing(stream)) {
      throw CudaError(
          "memory was asked for on a stream that is captured into a CUDA graph of which PyTorch "
          "has not told recoup, or whose capture has failed; nobody knows how long that memory "
          "must stay in place: capture by torch.cuda.graph");
    }
    scope = scope_for(device, size);
    if (scope == nullptr) {
      void* const memory = allocate_outside(there, size, stream);
      measure(device);
      return memory;
    }
  }
  void* const memory = scope->allocate(size, stream);
  const std::lock_guard lock(mutex_);
  measure(device);
  return memory;
}

std::pair<Cache*, int> Allocator::find_cache(const void* memory) {
  for (auto& [index, device] : devices_) {
    if (device.cache.owns(memory)) {
      return {&device.cache, index};
    }
    if (Cache* const pool = device.pools.owner(memory); pool != nullptr) {
      return {pool, index};
    }
  }
  return {nullptr, 0};
}

template <class Act>
std::optional<int> Allocator::at_owner(const void* memory, Act&& act) {
  Found found;
  {
    const std::lock_guard lock(mutex_);
    found = find_scope(memory);
    if (found.scope == nullptr) {
      const auto [cache, device] = find_cache(memory);
      RECOUP_CHECK(cache != nullptr, "memory that recoup has not given");
      act(*cache, device);
      return std::nullopt;
    }
  }
  act(*found.scope, found.device);
  return found.device;
}

void Allocator::free(void* memory) {
  if (memory == nullptr) {
    return;
  }
  const auto device = at_owner(memory, [&](auto& owner, int index) {
    owner.free(memory);
    if constexpr (std::is_same_v<decltype(owner), Cache&>) {
      devices_.at(index).pools.give_back();  // it may have been the last of its pool
    }
  });
  if (!device) {
    return;
  }
  std::vector<Entry> ended;
  const std::lock_guard lock(mutex_);
  ended = take_ended(*device);
}

std::vector<Allocator::Entry> Allocator::take_ended(int device) {
  std::vector<Entry>& entries = scopes_[device];
  const auto first = std::stable_partition(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.open || !entry.scope->empty();
  });
  std::vector<Entry> ended(std::make_move_iterator(first), std::make_move_iterator(entries.end()));
  entries.erase(first, entries.end());
  return ended;
}

void Allocator::record_stream(void* memory, void* stream) {
  if (memory != nullptr && is_known(memory)) {
    at_owner(memory, [&](auto& owner, int device) {
      owner.record_stream(memory, {.handle = stream, .device = device});
    });
  }
}

bool Allocator::owns(const void* memory) {
  const std::lock_guard lock(mutex_);
  for (const auto& [device, entries] : scopes_) {
    for (const Entry& entry : entries) {
      if (entry.scope->owns(memory)) {
        return !entry.open;
      }
    }
  }
  return find_cache(memory).first != nullptr;
}

bool Allocator::is_known(const void* memory) {
  const std::lock_guard lock(mutex_);
  return find_scope(memory).scope != nullptr || find_cache(memory).first != nullptr;
}

void Allocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (auto& [index, device] : devices_) {
    device.cache.empty();
    device.pools.give_back_now();
  }
}

void Allocator::begin_pool(int device, PrivatePools::Id id, PrivatePools::Filter filter) {
  std::shared_ptr<Scope> scope;  // to be let go of without the lock
  const std::lock_guard lock(mutex_);
  Device& there = device_at(device);
  scope = scope_for(device, Bytes(1));
  if (scope != nullptr) {
    throw std::runtime_error(no_capture_in_budget(str_cat("cuda:", device)));
  }
  there.pools.begin(id, std::move(filter));
}

void Allocator::end_pool(int device, PrivatePools::Id id) {
  const std::lock_guard lock(mutex_);
  device_at(device).pools.end(id);
}

void Allocator::release_pool(int device, PrivatePools::Id id) {
  const std::lock_guard lock(mutex_);
  device_at(device).pools.release(id);
}

void Allocator::enter(int device, std::shared_ptr<Scope> scope) {
  const std::lock_guard lock(mutex_);
  device_at(device);  // there is such a one
  std::vector<Entry>& entries = scopes_[device];
  if (!entries.empty() && entries.back().open) {
    throw std::logic_error(str_cat("cuda:", device, " has a budget already"));
  }
  // One that was suspended comes again: it is there, if it has memory.
  const auto known = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.scope == scope; });
  if (known != entries.end()) {
    std::rotate(known, known + 1, entries.end());
    entries.back().open = true;
  } else {
    entries.push_back({.scope = std::move(scope), .open = true});
  }
}

void Allocator::leave(int device) {
  std::vector<Entry> ended;
  const std::lock_guard lock(mutex_);
  if (std::vector<Entry>& entries = scopes_[device]; !entries.empty()) {
    entries.back().open = false;
  }
  ended = take_ended(device);
}

Allocator::Usage& Allocator::measure(int device) {
  const Device& there = device_at(device);
  Usage& usage = usage_[device];
  usage.outside = usage.reserved = there.cache.reserved() + there.pools.reserved();
  usage.used = there.cache.used() + there.pools.used();
  for (const Entry& entry : scopes_[device]) {
    const Bytes reserved = entry.scope->reserved();
    usage.outside += entry.open ? Bytes(0) : reserved;
    usage.reserved += reserved;
    usage.used += entry.scope->used();
  }
  usage.peak_reserved = std::max(usage.peak_reserved, usage.reserved);
  usage.peak_used = std::max(usage.peak_used, usage.used);
  return usage;
}

Allocator::Usage Allocator::usage(int device) {
  const std::lock_guard lock(mutex_);
  return measure(device);
}

void Allocator::reset_peaks(int device) {
  const std::lock_guard lock(mutex_);
  Usage& usage = measure(device);
  usage.peak_reserved = usage.reserved;
  usage.peak_used = usage.used;
}

void Allocator::check() {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, device] : devices_) {
    device.cache.check();
    device.pools.check();
  }
  for (const auto& [device, entries] : scopes_) {
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      RECOUP_CHECK(!entries[i].open, "two budgets on cuda:", device);
    }
  }
}

}  // namespace recoup::detail::cuda
