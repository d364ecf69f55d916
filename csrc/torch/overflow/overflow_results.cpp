#include "csrc/torch/overflow/overflow_results.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "csrc/paging/paged_memory.h"

namespace recoup::detail {
namespace {

const OverflowResults*& of_this_thread() {
  thread_local const OverflowResults* results = nullptr;
  return results;
}

}  // namespace

void delete_overflow(void* memory) {
  if (const OverflowResults* const results = OverflowResults::current()) {
    results->tell_freed(memory);
  }
  // Null in a forked child: the memory is its parent's.
  if (PagedMemory* const paged = PagedMemory::of_process()) {
    paged->release(memory);
  }
}

OverflowResults::OverflowResults(const Attempt& attempt, OverflowWindow& window, Freed freed)
    : attempt_(attempt), window_(window), freed_(std::move(freed)), outer_(of_this_thread()) {
  of_this_thread() = this;
}

OverflowResults::~OverflowResults() { of_this_thread() = outer_; }

const OverflowResults* OverflowResults::current() { return of_this_thread(); }

c10::DataPtr OverflowResults::allocate(std::size_t nbytes) const {
  window_.charge();
  used_ = true;
  const Bytes size(static_cast<std::int64_t>(nbytes));
  void* const memory = PagedMemory::in(window_.directory()).allocate(size);
  held_.push_back({.memory = memory, .size = size});
  return {memory, memory, &delete_overflow, c10::Device(c10::DeviceType::CPU)};
}

void OverflowResults::tell_freed(const void* memory) const {
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [memory](const Held& held) { return held.memory == memory; });
  if (found != held_.end()) {
    const Bytes size = found->size;
    held_.erase(found);
    freed_(overflow_key(memory), size);
  }
}

OverflowKey overflow_key(const void* address) {
  return static_cast<OverflowKey>(reinterpret_cast<std::uintptr_t>(address));
}

Bytes overflow_window_at(const void* address) {
  const PagedMemory* const paged = PagedMemory::of_process();
  return paged != nullptr && paged->has(address) ? paged->window() : Bytes(0);
}

bool release_overflow(void* memory) {
  PagedMemory* const paged = PagedMemory::of_process();
  const bool has = paged != nullptr && paged->has(memory);
  if (has) {
    paged->release(memory);
  }
  return has;
}

}  // namespace recoup::detail
