// A simple reference pool: it stores the allocated blocks only, and finds everything else by scans.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "csrc/pool/pool.h"

namespace recoup::detail {

struct Tile {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  bool free = false;
  ValueId owner = {};
  friend bool operator==(const Tile&, const Tile&) = default;
};

class PoolOracle {
 public:
  explicit PoolOracle(const PoolOptions& options)
      : alignment_(options.alignment.count()), segment_(round_up(options.segment_size.count())) {
    set_end(options.capacity.count());
  }

  [[nodiscard]] std::int64_t round_up(std::int64_t size) const {
    return (size + alignment_ - 1) / alignment_ * alignment_;
  }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  [[nodiscard]] bool starts_segment(std::int64_t offset) const {
    return segment_ > 0 && offset % segment_ == 0;
  }

  // All tiles by address. A free range ends at the next block or segment boundary.
  [[nodiscard]] std::vector<Tile> tiles() const {
    std::vector<Tile> tiles;
    std::int64_t at = 0;
    const auto add_free = [&](std::int64_t to) {
      while (at < to) {
        const std::int64_t end = segment_ > 0 ? std::min(to, (at / segment_ + 1) * segment_) : to;
        tiles.push_back({.offset = at, .size = end - at, .free = true});
        at = end;
      }
    };
    for (const auto& [offset, taken] : taken_) {
      add_free(offset);
      tiles.push_back(taken);
      at = offset + taken.size;
    }
    add_free(capacity_);
    return tiles;
  }

  // The free bytes that are directly before and after a block, within its segment.
  [[nodiscard]] std::int64_t free_around(std::int64_t offset) const {
    const std::int64_t end = offset + taken_.at(offset).size;
    std::int64_t sum = 0;
    for (const Tile& tile : tiles()) {
      if (tile.free && ((tile.offset + tile.size == offset && !starts_segment(offset)) ||
                        (tile.offset == end && !starts_segment(end)))) {
        sum += tile.size;
      }
    }
    return sum;
  }

  // Best fit: returns the offset of the new block.
  std::optional<std::int64_t> allocate(std::int64_t wanted, Zone zone) {
    const std::int64_t size = round_up(wanted);
    std::optional<Tile> best;
    for (const Tile& tile : tiles()) {
      if (tile.free && tile.size >= size &&
          (!best || tile.size < best->size || (tile.size == best->size && zone == Zone::kHigh))) {
        best = tile;
      }
    }
    if (!best) {
      return std::nullopt;
    }
    const std::int64_t offset =
        zone == Zone::kLow ? best->offset : best->offset + best->size - size;
    taken_[offset] = {.offset = offset, .size = size};
    return offset;
  }
  // Returns false if the range is not free.
  bool allocate_at(std::int64_t offset, std::int64_t wanted) {
    const std::int64_t size = round_up(wanted);
    for (const Tile& tile : tiles()) {
      if (tile.free && tile.offset <= offset && offset + size <= tile.offset + tile.size) {
        taken_[offset] = {.offset = offset, .size = size};
        return true;
      }
    }
    return false;
  }
  void free(std::int64_t offset) { taken_.erase(offset); }
  void set_end(std::int64_t end) {
    capacity_ = end / alignment_ * alignment_;
    for (const auto& [offset, taken] : taken_) {
      capacity_ = std::max(capacity_, offset + taken.size);
    }
  }
  void set_owner(std::int64_t offset, ValueId owner) { taken_.at(offset).owner = owner; }
  void move(std::int64_t from, std::int64_t to) {
    Tile tile = taken_.at(from);
    taken_.erase(from);
    tile.offset = to;
    taken_[to] = tile;
  }

  // All offsets to which the block at `from` can move.
  [[nodiscard]] std::vector<std::int64_t> targets(std::int64_t from) const {
    PoolOracle without = *this;
    const std::int64_t size = taken_.at(from).size;
    without.free(from);
    std::vector<std::int64_t> targets;
    for (const Tile& tile : without.tiles()) {
      for (std::int64_t to = tile.offset; tile.free && to + size <= tile.offset + tile.size;
           to += alignment_) {
        targets.push_back(to);
      }
    }
    return targets;
  }

  [[nodiscard]] std::int64_t used() const {
    std::int64_t sum = 0;
    for (const Tile& tile : tiles()) {
      sum += tile.free ? 0 : tile.size;
    }
    return sum;
  }
  [[nodiscard]] std::int64_t largest_free() const {
    std::int64_t most = 0;
    for (const Tile& tile : tiles()) {
      most = std::max(most, tile.free ? tile.size : 0);
    }
    return most;
  }
  // The largest range that can be cleared: from each tile upward to the next obstacle.
  [[nodiscard]] std::int64_t largest_window(const std::function<bool(ValueId)>& clearable) const {
    const std::vector<Tile> all = tiles();
    std::int64_t most = 0;
    for (std::size_t begin = 0; begin < all.size(); ++begin) {
      std::int64_t sum = 0;
      for (std::size_t at = begin; at < all.size(); ++at) {
        if ((at > begin && starts_segment(all[at].offset)) ||
            (!all[at].free && !clearable(all[at].owner))) {
          break;
        }
        sum += all[at].size;
      }
      most = std::max(most, sum);
    }
    return most;
  }

 private:
  std::int64_t alignment_;
  std::int64_t segment_;
  std::int64_t capacity_ = 0;
  std::map<std::int64_t, Tile> taken_;  // by offset
};

}  // namespace recoup::detail
