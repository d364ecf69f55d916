// Slab: records with stable ids and no allocation per record.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/check.h"

namespace recoup::detail {

// A table of T, indexed by IdType. References stay valid while the record lives: chunks never move.
// Ids of removed records are reused, the last removed first.
template <class T, class IdType>
class Slab {
 public:
  struct Added {
    IdType id;
    T& record;
  };
  Added emplace() {
    if (free_.empty()) [[unlikely]] {
      grow();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    ++size_;
    Slot& added = slot(index);
    added.live = true;  // its record was cleared when it was removed
    return {IdType(index), added.record};
  }
  IdType add() { return emplace().id; }

  void remove(IdType id) {
    RECOUP_DCHECK(contains(id));
    Slot& old = slot(id.index());
    old.live = false;
    // Faster than to assign an empty record: nothing is moved.
    std::destroy_at(&old.record);
    std::construct_at(&old.record);
    free_.push_back(id.index());
    --size_;
  }

  T& operator[](IdType id) {
    RECOUP_DCHECK(contains(id), "id ", id.index());
    return slot(id.index()).record;
  }
  const T& operator[](IdType id) const {
    RECOUP_DCHECK(contains(id), "id ", id.index());
    return slot(id.index()).record;
  }

  [[nodiscard]] bool contains(IdType id) const {
    return id.valid() && id.index() < end_ && slot(id.index()).live;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t memory() const {
    return chunks_.size() * sizeof(Chunk) + free_.capacity() * sizeof(std::uint32_t);
  }

  // In order of index, not of insertion.
  template <class Function>
  void for_each(Function&& function) const {
    for (std::uint32_t index = 0; index < end_; ++index) {
      if (slot(index).live) {
        function(IdType(index), slot(index).record);
      }
    }
  }

 private:
  static constexpr std::uint32_t kChunk = 256;
  struct Slot {
    T record{};
    bool live = false;
  };
  using Chunk = std::array<Slot, kChunk>;

  Slot& slot(std::uint32_t index) { return (*chunks_[index / kChunk])[index % kChunk]; }
  const Slot& slot(std::uint32_t index) const { return (*chunks_[index / kChunk])[index % kChunk]; }

  void grow() {
    chunks_.push_back(std::make_unique<Chunk>());
    for (std::uint32_t index = end_ + kChunk; index-- > end_;) {
      free_.push_back(index);
    }
    end_ += kChunk;
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t end_ = 0;
  std::size_t size_ = 0;
};

}  // namespace recoup::detail
