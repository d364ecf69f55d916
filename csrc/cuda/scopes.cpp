#include "csrc/cuda/scopes.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail::cuda {

std::shared_ptr<Scope> Scopes::wanting(int device, Bytes size) const {
  if (empty()) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(device);
  if (found == scopes_.end() || found->second.empty()) {
    return nullptr;
  }
  const Entry& last = found->second.back();
  return last.open && last.scope->wants(size) ? last.scope : nullptr;
}

Scopes::Found Scopes::find(const void* memory) const {
  if (memory == nullptr || empty()) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [device, entries] : scopes_) {
    for (const Entry& entry : entries) {
      if (entry.scope->owns(memory)) {
        return {.scope = entry.scope, .device = device, .open = entry.open};
      }
    }
  }
  return {};
}

bool Scopes::owns(const void* memory) const { return find(memory).scope != nullptr; }

bool Scopes::owns_left(const void* memory) const {
  const Found found = find(memory);
  return found.scope != nullptr && !found.open;
}

// A scope that leave() kept because of this memory is counted in left_. A scope that is left after
// Scope::free is removed by leave().
bool Scopes::free(void* memory) {
  std::vector<Entry> ended;
  const Found found = find(memory);
  if (found.scope == nullptr) {
    return false;
  }
  if (!found.open && defer(memory)) {
    return true;
  }
  found.scope->free(memory);
  if (left_.load() == 0) [[likely]] {
    return true;
  }
  const std::lock_guard lock(mutex_);
  ended = take_ended(found.device);
  return true;
}

bool Scopes::defer(void* memory) {
  const std::lock_guard lock(mutex_);
  if (captures_ > 0) {
    freed_.push_back(memory);
  }
  return captures_ > 0;
}

bool Scopes::record_stream(void* memory, void* stream) {
  const Found found = find(memory);
  if (found.scope != nullptr) {
    found.scope->record_stream(memory, {.handle = stream, .device = found.device});
  }
  return found.scope != nullptr;
}

std::vector<Scopes::Entry> Scopes::take_ended(int device) {
  if (captures_ > 0) {
    return {};
  }
  std::vector<Entry>& entries = scopes_[device];
  const auto first = std::stable_partition(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.open || !entry.scope->empty();
  });
  std::vector<Entry> ended(std::make_move_iterator(first), std::make_move_iterator(entries.end()));
  entries.erase(first, entries.end());
  count_ -= static_cast<int>(ended.size());
  left_ -= static_cast<int>(ended.size());
  return ended;
}

void Scopes::enter(int device, std::shared_ptr<Scope> scope) {
  const std::lock_guard lock(mutex_);
  std::vector<Entry>& entries = scopes_[device];
  if (!entries.empty() && entries.back().open) {
    throw std::logic_error(str_cat("cuda:", device, " already has a budget"));
  }
  // A suspended scope that is entered again is still listed if it has memory.
  const auto known = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.scope == scope; });
  if (known != entries.end()) {
    --left_;
    std::rotate(known, known + 1, entries.end());
    entries.back().open = true;
  } else {
    entries.push_back({.scope = std::move(scope), .open = true});
    ++count_;
  }
}

void Scopes::leave(int device) {
  std::vector<Entry> ended;
  const std::lock_guard lock(mutex_);
  if (std::vector<Entry>& entries = scopes_[device]; !entries.empty() && entries.back().open) {
    entries.back().open = false;
    ++left_;
  }
  ended = take_ended(device);
}

void Scopes::begin_capture() {
  const std::lock_guard lock(mutex_);
  ++captures_;
}

// A capture that began before PyTorch's allocator was decorated was not counted.
void Scopes::end_capture() {
  std::vector<void*> freed;
  std::vector<std::vector<Entry>> ended;
  {
    const std::lock_guard lock(mutex_);
    captures_ = std::max(captures_ - 1, 0);
    if (captures_ == 0) {
      freed = std::exchange(freed_, {});
    }
    for (const auto& each : scopes_) {
      ended.push_back(take_ended(each.first));
    }
  }
  for (void* const memory : freed) {
    (void)free(memory);
  }
}

Scopes::Usage Scopes::usage(int device) const {
  Usage usage{.left = Bytes(0), .reserved = Bytes(0), .used = Bytes(0)};
  const std::lock_guard lock(mutex_);
  const auto found = scopes_.find(device);
  if (found == scopes_.end()) {
    return usage;
  }
  for (const Entry& entry : found->second) {
    const Bytes reserved = entry.scope->reserved();
    usage.left += entry.open ? Bytes(0) : reserved;
    usage.reserved += reserved;
    usage.used += entry.scope->used();
  }
  return usage;
}

std::vector<OutsideSegment> Scopes::left_segments(int device) const {
  std::vector<OutsideSegment> segments;
  const std::lock_guard lock(mutex_);
  if (const auto found = scopes_.find(device); found != scopes_.end()) {
    for (const Entry& entry : found->second) {
      if (auto segment = entry.open ? std::nullopt : entry.scope->left_segment()) {
        segments.push_back(std::move(*segment));
      }
    }
  }
  return segments;
}

void Scopes::check() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  std::ptrdiff_t left = 0;
  for (const auto& [device, entries] : scopes_) {
    count += entries.size();
    left +=
        std::count_if(entries.begin(), entries.end(), [](const Entry& each) { return !each.open; });
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      RECOUP_CHECK(!entries[i].open, "two budgets on cuda:", device);
    }
  }
  RECOUP_CHECK(static_cast<int>(count) == count_.load());
  RECOUP_CHECK(left == left_.load());
}

}  // namespace recoup::detail::cuda
