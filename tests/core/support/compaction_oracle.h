// Computes the results that Note [Compaction] promises by trying every window, and whether any
// rearrangement could succeed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "tests/core/support/pool_oracle.h"

namespace recoup::detail {

class CompactionOracle {
 public:
  using Movable = std::function<bool(ValueId)>;

  CompactionOracle(const PoolOracle& pool, Movable movable)
      : pool_(pool), movable_(std::move(movable)) {}

  // The fewest moved bytes that leave a free range of `size`; nullopt if the three methods of the
  // note fail.
  [[nodiscard]] std::optional<std::int64_t> cheapest(std::int64_t size) const {
    const auto slide = cheapest_slide(size);
    const auto relocation = cheapest_relocation(size);
    if (slide && relocation) {
      return std::min(*slide, *relocation);
    }
    if (slide || relocation) {
      return slide ? slide : relocation;
    }
    CompactionOracle slid(pool_, movable_);
    const std::int64_t moved = slid.slide_all();
    const auto after = slid.cheapest_relocation(size);
    return after ? std::optional(*after + moved) : std::nullopt;
  }

  // The cheapest of slides only: the free bytes of one window must suffice.
  [[nodiscard]] std::optional<std::int64_t> cheapest_slide(std::int64_t size) const {
    std::optional<std::int64_t> best;
    for_each_window([&](const Window& window) {
      if (window.free >= size && (!best || window.moved() < *best)) {
        best = window.moved();
      }
    });
    return best;
  }

  // Moves every movable block as far down as possible. Returns the number of moved bytes.
  std::int64_t slide_all() {
    std::int64_t moved = 0;
    std::int64_t to = 0;
    for (const Tile& tile : pool_.tiles()) {
      if (pool_.starts_segment(tile.offset)) {
        to = tile.offset;
      }
      if (tile.free) {
        continue;
      }
      if (movable_(tile.owner) && tile.offset != to) {
        pool_.move(tile.offset, to);
        moved += tile.size;
        to += tile.size;
      } else {
        to = tile.offset + tile.size;
      }
    }
    return moved;
  }
  [[nodiscard]] const PoolOracle& pool() const { return pool_; }

  // Whether any distribution of the movable blocks over the regions leaves `size` in one of them.
  [[nodiscard]] bool possible(std::int64_t size) const {
    std::vector<std::int64_t> rooms;
    std::vector<std::int64_t> blocks;
    bool open = false;
    for (const Tile& tile : pool_.tiles()) {
      if (!clearable(tile)) {
        open = false;
        continue;
      }
      if (!open || pool_.starts_segment(tile.offset)) {
        rooms.push_back(0);
        open = true;
      }
      rooms.back() += tile.size;
      if (!tile.free) {
        blocks.push_back(tile.size);
      }
    }
    std::sort(blocks.rbegin(), blocks.rend());
    for (std::int64_t& room : rooms) {
      if (room >= size) {
        room -= size;
        if (distributes(blocks, 0, rooms)) {
          return true;
        }
        room += size;
      }
    }
    return false;
  }

 private:
  struct Window {
    std::int64_t free = 0;
    std::vector<std::int64_t> leaving;
    std::vector<std::int64_t> holes;  // free ranges outside the window
    [[nodiscard]] std::int64_t moved() const {
      return std::accumulate(leaving.begin(), leaving.end(), std::int64_t{0});
    }
  };

  [[nodiscard]] bool clearable(const Tile& tile) const { return tile.free || movable_(tile.owner); }

  // Calls `function` for every run of tiles that contains no immovable block and no segment
  // boundary.
  void for_each_window(const std::function<void(const Window&)>& function) const {
    const std::vector<Tile> tiles = pool_.tiles();
    for (std::size_t begin = 0; begin < tiles.size(); ++begin) {
      for (std::size_t end = begin; end < tiles.size(); ++end) {
        if (!clearable(tiles[end]) || (end > begin && pool_.starts_segment(tiles[end].offset))) {
          break;
        }
        Window window;
        for (std::size_t at = 0; at < tiles.size(); ++at) {
          const bool inside = begin <= at && at <= end;
          if (inside && tiles[at].free) {
            window.free += tiles[at].size;
          } else if (inside) {
            window.leaving.push_back(tiles[at].size);
          } else if (tiles[at].free) {
            window.holes.push_back(tiles[at].size);
          }
        }
        function(window);
      }
    }
  }
  // Moves the blocks of a window into holes elsewhere: the largest first, each into the smallest
  // hole that holds it.
  [[nodiscard]] std::optional<std::int64_t> cheapest_relocation(std::int64_t size) const {
    std::optional<std::int64_t> best;
    for_each_window([&](Window window) {
      if (window.free + window.moved() < size || (best && window.moved() >= *best)) {
        return;
      }
      const std::int64_t moved = window.moved();
      std::sort(window.leaving.rbegin(), window.leaving.rend());
      for (const std::int64_t block : window.leaving) {
        std::int64_t* room = nullptr;
        for (std::int64_t& hole : window.holes) {
          if (hole >= block && (room == nullptr || hole < *room)) {
            room = &hole;
          }
        }
        if (room == nullptr) {
          return;
        }
        *room -= block;
      }
      best = moved;
    });
    return best;
  }
  static bool distributes(const std::vector<std::int64_t>& blocks, std::size_t at,
                          std::vector<std::int64_t>& rooms) {
    if (at == blocks.size()) {
      return true;
    }
    for (std::int64_t& room : rooms) {
      if (room >= blocks[at]) {
        room -= blocks[at];
        const bool rest = distributes(blocks, at + 1, rooms);
        room += blocks[at];
        if (rest) {
          return true;
        }
      }
    }
    return false;
  }

  PoolOracle pool_;
  Movable movable_;
};

}  // namespace recoup::detail
