// FlatMap: a map from offsets or addresses to ids that takes a few nanoseconds per call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// Open addressing with linear probing. Erasing moves later entries of the probe sequence back, so
// there are no tombstones. At most half of the slots are used.
template <class IdType>
class FlatMap {
 public:
  FlatMap() : slots_(64), mask_(slots_.size() - 1) {}

  void insert(std::int64_t key, IdType id) {
    if (2 * (size_ + 1) > mask_ + 1) {
      grow();
    }
    place({key, id});
    ++size_;
  }

  // `key` must be in the map.
  void erase(std::int64_t key) {
    std::size_t hole = position(key);
    --size_;
    for (std::size_t at = next(hole); slots_[at].id.valid(); at = next(at)) {
      const std::size_t home = hash(slots_[at].key);
      // Stays if its home lies cyclically in (hole, at].
      const bool reachable = hole <= at ? hole < home && home <= at : hole < home || home <= at;
      if (!reachable) {
        slots_[hole] = slots_[at];
        hole = at;
      }
    }
    slots_[hole] = Slot{};
  }

  // Invalid if the key is not in the map.
  [[nodiscard]] IdType get(std::int64_t key) const { return slots_[position(key)].id; }
  [[nodiscard]] std::optional<IdType> find(std::int64_t key) const {
    const IdType id = get(key);
    return id.valid() ? std::optional(id) : std::nullopt;
  }

  // Calls function(id); it must not change the map.
  template <class Function>
  void for_each(Function&& function) const {
    for (const Slot& slot : slots_) {
      if (slot.id.valid()) {
        function(slot.id);
      }
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::int64_t key = 0;
    IdType id;
  };

  [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & mask_; }
  [[nodiscard]] std::size_t hash(std::int64_t key) const {
    return (static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15ULL >> 32) & mask_;
  }
  // The slot of the key, or the empty slot where it would be inserted.
  [[nodiscard]] std::size_t position(std::int64_t key) const {
    std::size_t at = hash(key);
    while (slots_[at].id.valid() && slots_[at].key != key) {
      at = next(at);
    }
    return at;
  }
  void place(const Slot& slot) { slots_[position(slot.key)] = slot; }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.id.valid()) {
        place(slot);
      }
    }
  }

  std::vector<Slot> slots_;  // the size is a power of two
  std::size_t mask_;
  std::size_t size_ = 0;
};

}  // namespace recoup::detail
