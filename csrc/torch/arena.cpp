#include "csrc/torch/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace recoup::detail {
namespace {

struct Retired {
  std::unique_ptr<Arena> arena;
  std::unordered_map<std::int64_t, Bytes> blocks;  // size by offset
};

struct RetiredArenas {
  std::mutex mutex;
  std::vector<Retired> arenas;
};

// Never destroyed: storages may die after static destructors have run.
RetiredArenas& retired_arenas() {
  static auto* const arenas = new RetiredArenas;
  return *arenas;
}

// Gives whole pages of [from, to) back to the system.
void discard(const Arena& arena, PoolOffset from, PoolOffset to) {
  static const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t first = (from.count() + page - 1) / page * page;
  const std::int64_t last = to.count() / page * page;
  if (first < last) {
    madvise(arena.at(Bytes(first)), static_cast<std::size_t>(last - first), MADV_DONTNEED);
  }
}

}  // namespace

Arena::Arena(Bytes size) : size_(size) {
  // Page-aligned from mmap; huge pages need their own alignment, which the kernel finds inside.
  void* const base = mmap(nullptr, static_cast<std::size_t>(size.count()), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw std::bad_alloc();
  }
  base_ = static_cast<char*>(base);
  madvise(base, static_cast<std::size_t>(size.count()), MADV_HUGEPAGE);
}

Arena::~Arena() { munmap(base_, static_cast<std::size_t>(size_.count())); }

void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) {
  if (blocks.empty()) {
    return;
  }
  Retired retired{.arena = std::move(arena), .blocks = {}};
  PoolOffset end{0};
  for (const BlockView& block : blocks) {
    retired.blocks.emplace(block.offset.count(), block.size);
    discard(*retired.arena, end, block.offset);
    end = block.offset + block.size;
  }
  discard(*retired.arena, end, retired.arena->size());
  RetiredArenas& all = retired_arenas();
  const std::lock_guard lock(all.mutex);
  all.arenas.push_back(std::move(retired));
}

bool release_retired(const void* pointer) {
  RetiredArenas& all = retired_arenas();
  const std::lock_guard lock(all.mutex);
  for (std::size_t i = 0; i < all.arenas.size(); ++i) {
    Retired& retired = all.arenas[i];
    if (!retired.arena->contains(pointer)) {
      continue;
    }
    const PoolOffset offset = retired.arena->offset(pointer);
    const auto found = retired.blocks.find(offset.count());
    if (found == retired.blocks.end()) {
      return false;
    }
    discard(*retired.arena, offset, offset + found->second);
    retired.blocks.erase(found);
    if (retired.blocks.empty()) {
      all.arenas.erase(all.arenas.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return true;
  }
  return false;
}

}  // namespace recoup::detail
