// OffsetMap: which block starts at an offset, in a few nanoseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// Open addressing with linear probing; erasing shifts back what probed past the hole, so there are
// no tombstones. Never more than half full.
class OffsetMap {
 public:
  OffsetMap() : slots_(64) {}

  void insert(std::int64_t offset, BlockId block) {
    if (2 * (size_ + 1) > slots_.size()) {
      grow();
    }
    place({offset, block});
    ++size_;
  }

  void erase(std::int64_t offset) {
    std::size_t hole = position(offset);
    --size_;
    for (std::size_t at = next(hole); slots_[at].block.valid(); at = next(at)) {
      const std::size_t home = hash(slots_[at].offset);
      // Stays if its home lies cyclically in (hole, at].
      const bool reachable = hole <= at ? hole < home && home <= at : hole < home || home <= at;
      if (!reachable) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = Slot{};
  }

  [[nodiscard]] std::optional<BlockId> find(std::int64_t offset) const {
    const Slot& slot = slots_[position(offset)];
    return slot.block.valid() ? std::optional(slot.block) : std::nullopt;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::int64_t offset = 0;
    BlockId block;
  };

  [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  [[nodiscard]] std::size_t hash(std::int64_t offset) const {
    return (static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15ULL >> 32) & (slots_.size() - 1);
  }
  // Where it is, or the empty slot where it would go.
  [[nodiscard]] std::size_t position(std::int64_t offset) const {
    std::size_t at = hash(offset);
    while (slots_[at].block.valid() && slots_[at].offset != offset) {
      at = next(at);
    }
    return at;
  }
  void place(const Slot& slot) { slots_[position(slot.offset)] = slot; }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.block.valid()) {
        place(slot);
      }
    }
  }

  std::vector<Slot> slots_;  // a power of two of them
  std::size_t size_ = 0;
};

}  // namespace recoup::detail
