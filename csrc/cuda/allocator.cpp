#include "csrc/cuda/allocator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {

Allocator::Device& Allocator::device_at(int index) {
  const auto found = devices_.find(index);
  if (found != devices_.end()) {
    return found->second;
  }
  const int count = runtime_.device_count();
  if (index < 0 || index >= count) {
    throw CudaError(str_cat("there is no device cuda:", index, "; there are ", count));
  }
  return devices_.try_emplace(index, runtime_, index).first->second;
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
    if (runtime_.capturing(stream)) {
      throw CudaError(
          "memory was asked for on a stream that is captured into a CUDA graph of which PyTorch "
          "has not told recoup, or whose capture has failed; recoup cannot know how long that "
          "memory "
          "must stay in place: capture by torch.cuda.graph");
    }
    scope = scopes_.wanting(device, size);
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

void Allocator::free(void* memory) {
  if (memory == nullptr || scopes_.free(memory)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto [cache, device] = find_cache(memory);
  RECOUP_CHECK(cache != nullptr, "memory that recoup has not given");
  cache->free(memory);
  devices_.at(device).pools.give_back();  // it may have been the last of its pool
}

void Allocator::record_stream(void* memory, void* stream) {
  if (memory == nullptr || scopes_.record_stream(memory, stream)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (const auto [cache, device] = find_cache(memory); cache != nullptr) {
    cache->record_stream(memory, {.handle = stream, .device = device});
  }
}

bool Allocator::owns(const void* memory) {
  const std::lock_guard lock(mutex_);
  return find_cache(memory).first != nullptr;
}

void Allocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (auto& [index, device] : devices_) {
    device.cache.empty();
    device.pools.give_back_now();
  }
}

void Allocator::begin_pool(int device, PrivatePools::Id id, PrivatePools::Filter filter) {
  const std::lock_guard lock(mutex_);
  Device& there = device_at(device);
  if (scopes_.wanting(device, Bytes(1)) != nullptr) {
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

Allocator::Usage& Allocator::measure(int device) {
  const Device& there = device_at(device);
  Usage& usage = usage_[device];
  const Scopes::Usage scopes = scopes_.usage(device);
  const Bytes cached = there.cache.reserved() + there.pools.reserved();
  usage.outside = cached + scopes.left;
  usage.reserved = cached + scopes.reserved;
  usage.used = there.cache.used() + there.pools.used() + scopes.used;
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
}

}  // namespace recoup::detail::cuda
