// The part of Memory that implements the driver's virtual memory functions.
#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/cuda_stand_in/device/memory.h"

namespace recoup::stand_in {

Outcome Memory::reserve(int device, std::size_t size, Address& at) {
  const std::lock_guard lock(mutex_);
  if (size == 0 || size % kGranularity != 0) {
    return Outcome::kInvalid;
  }
  at = find_addresses(size);
  if (at == 0) {
    return Outcome::kNoMemory;
  }
  blocks_[at] = {.begin = at, .size = size, .device = device, .kind = BlockKind::kReserved};
  return Outcome::kDone;
}

Outcome Memory::unreserve(Address at, std::size_t size) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(at);
  const auto mapped = mappings_.lower_bound(at);
  if (found == blocks_.end() || found->second.kind != BlockKind::kReserved ||
      found->second.size != size || (mapped != mappings_.end() && mapped->first < at + size)) {
    return Outcome::kInvalid;
  }
  blocks_.erase(found);
  return Outcome::kDone;
}

Outcome Memory::create(int device, std::size_t size, std::uint64_t& handle) {
  const std::lock_guard lock(mutex_);
  if (size == 0 || size % kGranularity != 0) {
    return Outcome::kInvalid;
  }
  if (used_by(device) + size > limit_) {
    return Outcome::kNoMemory;
  }
  used_by(device) += size;
  handle = ++last_handle_;
  handles_[handle] = {.size = size, .device = device, .users = 1};
  return Outcome::kDone;
}

void Memory::drop(std::uint64_t handle) {
  const auto found = handles_.find(handle);
  if (--found->second.users == 0) {
    used_by(found->second.device) -= found->second.size;
    handles_.erase(found);
  }
}

Outcome Memory::release_handle(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  if (!handles_.contains(handle)) {
    return Outcome::kInvalid;
  }
  drop(handle);
  return Outcome::kDone;
}

Outcome Memory::map(Address at, std::size_t size, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const std::optional<Block> block = find_block(at);
  const auto memory = handles_.find(handle);
  if (!block || block->kind != BlockKind::kReserved || at + size > block->begin + block->size ||
      memory == handles_.end() || memory->second.size < size) {
    return Outcome::kInvalid;
  }
  const auto next = mappings_.lower_bound(at);
  const bool meets_next = next != mappings_.end() && next->first < at + size;
  const bool meets_previous =
      next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.size > at;
  if (meets_next || meets_previous) {
    return Outcome::kInvalid;
  }
  if (!back({.begin = at, .size = size, .device = memory->second.device, .handle = handle})) {
    return Outcome::kNoMemory;
  }
  ++memory->second.users;
  return Outcome::kDone;
}

// The range must consist of whole mappings.
Outcome Memory::unmap(Address at, std::size_t size) {
  const std::lock_guard lock(mutex_);
  std::vector<Mapping> whole;
  for (auto each = mappings_.lower_bound(at); each != mappings_.end() && each->first < at + size;
       ++each) {
    if (each->first + each->second.size > at + size || each->second.handle == 0) {
      return Outcome::kInvalid;
    }
    whole.push_back(each->second);
  }
  for (const Mapping& mapping : whole) {
    unback(mapping.begin);
    drop(mapping.handle);
  }
  return whole.empty() ? Outcome::kInvalid : Outcome::kDone;
}

Outcome Memory::retain(const void* memory, std::uint64_t& handle) {
  const std::optional<Mapping> mapping = mapping_at(memory);
  if (!mapping || mapping->handle == 0) {
    return Outcome::kInvalid;
  }
  const std::lock_guard lock(mutex_);
  handle = mapping->handle;
  ++handles_.at(handle).users;
  return Outcome::kDone;
}

std::optional<int> Memory::device_of_handle(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? std::nullopt : std::optional(found->second.device);
}

}  // namespace recoup::stand_in
