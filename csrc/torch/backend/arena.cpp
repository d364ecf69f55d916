#include "csrc/torch/backend/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "csrc/base/fork_mutex.h"

namespace recoup::detail {
namespace {

struct RetiredArenas {
  ForkMutex mutex;
  std::vector<RetiredArena> arenas;
};

// Never destroyed: storages may die after static destructors have run.
RetiredArenas& retired_arenas() {
  static auto* const arenas = new RetiredArenas;
  return *arenas;
}

constexpr Bytes kHugePage(2 << 20);

// Aligned to huge pages, so that it is known which bytes the system backs together.
void* reserve(Bytes size) {
  const auto wanted = static_cast<std::size_t>(size.count());
  constexpr auto kHuge = static_cast<std::size_t>(kHugePage.count());
  void* const found = mmap(nullptr, wanted + kHuge, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) {
    throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(found);
  const std::size_t skipped = (kHuge - address % kHuge) % kHuge;
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t end = (skipped + wanted + page - 1) / page * page;
  auto* const base = static_cast<char*>(found) + skipped;
  if (skipped > 0) {
    munmap(found, skipped);
  }
  if (end < wanted + kHuge) {
    munmap(static_cast<char*>(found) + end, wanted + kHuge - end);
  }
  madvise(base, wanted, MADV_HUGEPAGE);
  return base;
}

}  // namespace

HostArena::HostArena(Bytes size) : Arena(reserve(size), size) {}

HostArena::~HostArena() { munmap(at(Bytes(0)), static_cast<std::size_t>(size().count())); }

PageSizes HostArena::page_sizes() {
  return {.page = Bytes(sysconf(_SC_PAGESIZE)), .huge = kHugePage};
}

void HostArena::discard(PoolOffset from, PoolOffset to) noexcept {
  static const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t first = (from.count() + page - 1) / page * page;
  const std::int64_t last = std::min(to, size()).count() / page * page;
  if (first < last) {
    madvise(at(Bytes(first)), static_cast<std::size_t>(last - first), MADV_DONTNEED);
  }
}

RetiredArena::RetiredArena(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks)
    : arena_(std::move(arena)) {
  PoolOffset end{0};
  for (const BlockView& block : blocks) {
    blocks_.emplace(block.offset, block.size);
    used_ += block.size;
    arena_->discard(end, block.offset);
    end = block.offset + block.size;
  }
  arena_->discard(end, arena_->size());
}

std::vector<const void*> RetiredArena::in_use() const {
  std::vector<const void*> addresses;
  for (const auto& [offset, size] : blocks_) {
    addresses.push_back(arena_->at(offset));
  }
  return addresses;
}

bool RetiredArena::release(const void* pointer) {
  const auto found = blocks_.find(arena_->offset(pointer));
  if (found == blocks_.end()) {
    return false;
  }
  used_ -= found->second;
  // Discards up to the neighbors: the system takes back whole pages, which may span several blocks.
  const auto next = blocks_.erase(found);
  const PoolOffset from =
      next == blocks_.begin() ? Bytes(0) : std::prev(next)->first + std::prev(next)->second;
  arena_->discard(from, next == blocks_.end() ? arena_->size() : next->first);
  return true;
}

void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) {
  if (blocks.empty()) {
    return;
  }
  RetiredArena retired(std::move(arena), blocks);
  RetiredArenas& all = retired_arenas();
  const std::lock_guard lock(all.mutex);
  all.arenas.push_back(std::move(retired));
}

bool release_retired(const void* pointer) {
  RetiredArenas& all = retired_arenas();
  const std::lock_guard lock(all.mutex);
  const auto found =
      std::find_if(all.arenas.begin(), all.arenas.end(),
                   [pointer](const RetiredArena& arena) { return arena.contains(pointer); });
  if (found == all.arenas.end()) {
    return false;
  }
  const bool released = found->release(pointer);
  if (found->empty()) {
    all.arenas.erase(found);
  }
  return released;
}

}  // namespace recoup::detail
