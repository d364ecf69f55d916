#include "tests/cuda_stand_in/device/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/cuda_stand_in/device/settings.h"

namespace recoup::stand_in {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t rounded(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

// Not in host-only mode: the pages would be allocated.
void poison(void* begin, std::size_t size) {
  if (!settings().host_only) {
    std::memset(begin, kPoison, size);
  }
}

void* host_address(Address at) { return reinterpret_cast<void*>(at); }

}  // namespace

Memory::Memory(int devices, std::size_t limit, std::size_t pinned_limit)
    : limit_(limit), used_(static_cast<std::size_t>(devices)), pinned_limit_(pinned_limit) {
  void* const wanted = host_address(kFirst);
  if (mmap(wanted, 2 * kSpan, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != wanted) {
    std::perror("CUDA stand-in: no room for the addresses of its devices");
    std::abort();
  }
}

// First fit: addresses are reused as soon as they are free, so that a use after free hits the next
// owner.
Address Memory::find_addresses(std::size_t size) const {
  Address at = kFirst + kGranularity;
  for (auto next = blocks_.lower_bound(kFirst);
       next != blocks_.end() && next->first < std::min(at + size, kFirst + kSpan); ++next) {
    at = std::max(at, rounded(next->first + next->second.size, kGranularity));
  }
  return at + size <= kFirst + kSpan ? at : 0;
}

bool Memory::back(const Mapping& mapping) {
  void* const bytes = host_address(mapping.begin + kSpan);
  if (mmap(bytes, mapping.size, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != bytes) {
    return false;
  }
  poison(bytes, mapping.size);
  mappings_[mapping.begin] = mapping;
  return true;
}

void Memory::unback(Address at) {
  const auto found = mappings_.find(at);
  mmap(host_address(at + kSpan), found->second.size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  mappings_.erase(found);
}

void* Memory::allocate(int device, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const std::size_t whole = rounded(size, kPage);
  if (used_by(device) + whole > limit_) {
    return nullptr;
  }
  const Address at = find_addresses(whole);
  if (at == 0 || !back({.begin = at, .size = whole, .device = device, .handle = 0})) {
    return nullptr;
  }
  blocks_[at] = {.begin = at, .size = whole, .device = device, .kind = BlockKind::kDevice};
  used_by(device) += whole;
  return host_address(at);
}

Outcome Memory::release(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address_of(memory));
  if (found == blocks_.end() || found->second.kind != BlockKind::kDevice) {
    return Outcome::kInvalid;
  }
  used_by(found->second.device) -= found->second.size;
  unback(found->first);
  blocks_.erase(found);
  return Outcome::kDone;
}

void* Memory::pin(int device, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const std::size_t whole = rounded(size, kPage);
  if (pinned_ + whole > pinned_limit_) {
    return nullptr;
  }
  void* const made =
      mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) {
    return nullptr;
  }
  poison(made, whole);
  const Address at = address_of(made);
  blocks_[at] = {.begin = at, .size = whole, .device = device, .kind = BlockKind::kPinned};
  pinned_ += whole;
  return made;
}

Outcome Memory::unpin(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address_of(memory));
  if (found == blocks_.end() || found->second.kind != BlockKind::kPinned) {
    return Outcome::kInvalid;
  }
  pinned_ -= found->second.size;
  munmap(memory, found->second.size);
  blocks_.erase(found);
  return Outcome::kDone;
}

Outcome Memory::add_registered(int device, void* memory, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (find_block(address_of(memory))) {
    return Outcome::kInvalid;
  }
  const Address at = address_of(memory);
  blocks_[at] = {.begin = at, .size = size, .device = device, .kind = BlockKind::kRegistered};
  return Outcome::kDone;
}

Outcome Memory::remove_registered(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address_of(memory));
  if (found == blocks_.end() || found->second.kind != BlockKind::kRegistered) {
    return Outcome::kInvalid;
  }
  blocks_.erase(found);
  return Outcome::kDone;
}

bool Memory::accessible(const void* memory, std::size_t size) {
  if (!is_device(memory)) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  for (Address at = address_of(memory), end = at + size; at < end;) {
    const auto next = mappings_.upper_bound(at);
    if (next == mappings_.begin()) {
      return false;
    }
    const Mapping& mapping = std::prev(next)->second;
    if (at >= mapping.begin + mapping.size) {
      return false;
    }
    at = mapping.begin + mapping.size;
  }
  return true;
}

std::optional<Block> Memory::find_block(Address at) const {
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) {
    return std::nullopt;
  }
  const Block& block = std::prev(next)->second;
  return at < block.begin + block.size ? std::optional(block) : std::nullopt;
}

std::optional<Block> Memory::block_at(const void* memory) {
  const std::lock_guard lock(mutex_);
  return find_block(address_of(memory));
}

std::optional<Mapping> Memory::mapping_at(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto next = mappings_.upper_bound(address_of(memory));
  if (next == mappings_.begin()) {
    return std::nullopt;
  }
  const Mapping& mapping = std::prev(next)->second;
  return address_of(memory) < mapping.begin + mapping.size ? std::optional(mapping) : std::nullopt;
}

bool Memory::is_pinned(const void* memory) {
  const std::optional<Block> block = block_at(memory);
  return block && (block->kind == BlockKind::kPinned || block->kind == BlockKind::kRegistered);
}

std::size_t Memory::used(int device) {
  const std::lock_guard lock(mutex_);
  return used_by(device);
}

std::size_t Memory::pinned() {
  const std::lock_guard lock(mutex_);
  return pinned_;
}

void Memory::set_pinned_limit(std::size_t limit) {
  const std::lock_guard lock(mutex_);
  pinned_limit_ = limit;
}

}  // namespace recoup::stand_in
