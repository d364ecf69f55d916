#include "csrc/torch/backend/paged_results.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "csrc/disk/paged_memory.h"

namespace recoup::detail {
namespace {

const PagedResults*& of_this_thread() {
  thread_local const PagedResults* results = nullptr;
  return results;
}

}  // namespace

void delete_paged(void* memory) {
  if (const PagedResults* const results = PagedResults::current()) {
    results->tell_freed(memory);
  }
  // Null in a forked child: the memory is its parent's.
  if (PagedMemory* const paged = PagedMemory::of_process()) {
    paged->release(memory);
  }
}

PagedResults::PagedResults(Settings settings)
    : settings_(std::move(settings)), outer_(of_this_thread()) {
  of_this_thread() = this;
}

PagedResults::~PagedResults() { of_this_thread() = outer_; }

const PagedResults* PagedResults::current() { return of_this_thread(); }

c10::DataPtr PagedResults::allocate(std::size_t nbytes) const {
  settings_.charge();
  used_ = true;
  const Bytes size(static_cast<std::int64_t>(nbytes));
  void* const memory = PagedMemory::in(settings_.directory).allocate(size);
  held_.push_back({.memory = memory, .size = size});
  return {memory, memory, &delete_paged, c10::Device(c10::DeviceType::CPU)};
}

void PagedResults::tell_freed(const void* memory) const {
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [memory](const Held& held) { return held.memory == memory; });
  if (found != held_.end()) {
    const Bytes size = found->size;
    held_.erase(found);
    settings_.freed(page_key(memory), size);
  }
}

PageKey page_key(const void* address) {
  return static_cast<PageKey>(reinterpret_cast<std::uintptr_t>(address));
}

bool is_paged(const c10::DataPtr& data) { return data.get_deleter() == &delete_paged; }

bool is_in_paged_memory(const void* address) {
  const PagedMemory* const paged = PagedMemory::of_process();
  return paged != nullptr && paged->has(address);
}

bool release_paged(void* memory) {
  PagedMemory* const paged = PagedMemory::of_process();
  const bool has = paged != nullptr && paged->has(memory);
  if (has) {
    paged->release(memory);
  }
  return has;
}

}  // namespace recoup::detail
