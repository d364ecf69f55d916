#include "csrc/cuda/allocator.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"

namespace recoup::detail::cuda {

Allocator::Allocator(std::unique_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

Cache& Allocator::cache(int device) {
  const auto found = caches_.find(device);
  if (found != caches_.end()) {
    return found->second;
  }
  const int count = runtime_->device_count();
  if (device < 0 || device >= count) {
    throw CudaError(str_cat("there is no device cuda:", device, "; there are ", count));
  }
  return caches_.try_emplace(device, *runtime_, device).first->second;
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

void* Allocator::allocate(Bytes size, int device, Stream stream) {
  if (size == Bytes(0)) {
    return nullptr;
  }
  if (runtime_->capturing(stream)) {
    throw CudaError(
        "memory was asked for while a CUDA graph is captured; recoup's allocator cannot give any "
        "that stays in place: capture before importing recoup, or not at all");
  }
  std::shared_ptr<Scope> scope;
  {
    const std::lock_guard lock(mutex_);
    const auto found = scopes_.find(device);
    if (found == scopes_.end() || found->second.empty() || !found->second.back().open ||
        !found->second.back().scope->wants(size)) {
      void* const memory = cache(device).allocate(size, stream);
      measure(device);
      return memory;
    }
    scope = found->second.back().scope;
  }
  void* const memory = scope->allocate(size, stream);
  const std::lock_guard lock(mutex_);
  measure(device);
  return memory;
}

template <class Act>
std::optional<int> Allocator::at_owner(const void* memory, Act&& act) {
  Found found;
  {
    const std::lock_guard lock(mutex_);
    found = find_scope(memory);
    if (found.scope == nullptr) {
      const auto cache = std::find_if(caches_.begin(), caches_.end(),
                                      [&](const auto& each) { return each.second.owns(memory); });
      RECOUP_CHECK(cache != caches_.end(), "memory that recoup has not given");
      act(cache->second, cache->first);
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
  const auto device = at_owner(memory, [&](auto& owner, int) { owner.free(memory); });
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
  return std::any_of(caches_.begin(), caches_.end(),
                     [&](const auto& each) { return each.second.owns(memory); });
}

bool Allocator::is_known(const void* memory) {
  const std::lock_guard lock(mutex_);
  return find_scope(memory).scope != nullptr ||
         std::any_of(caches_.begin(), caches_.end(),
                     [&](const auto& each) { return each.second.owns(memory); });
}

void Allocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (auto& [device, cache] : caches_) {
    cache.empty();
  }
}

void Allocator::enter(int device, std::shared_ptr<Scope> scope) {
  const std::lock_guard lock(mutex_);
  cache(device);  // there is such a device
  std::vector<Entry>& entries = scopes_[device];
  if (!entries.empty() && entries.back().open) {
    throw std::logic_error(str_cat("cuda:", device, " has a budget already"));
  }
  entries.push_back({.scope = std::move(scope), .open = true});
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
  const Cache& outside = cache(device);
  Usage& usage = usage_[device];
  usage.outside = usage.reserved = outside.reserved();
  usage.used = outside.used();
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
  for (const auto& [device, cache] : caches_) {
    cache.check();
  }
  for (const auto& [device, entries] : scopes_) {
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      RECOUP_CHECK(!entries[i].open, "two budgets on cuda:", device);
    }
  }
}

}  // namespace recoup::detail::cuda
