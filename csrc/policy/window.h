// The cheapest run of neighboring blocks that makes room (Coop's sliding window).
//
//   |##|....|aaa|..|bb|####|cc|.....|d|###|     `#` is unevictable and ends every window
//       [--------------]    [---------]
//
// A free block costs nothing, one that can only be moved what that costs. Both ends move forward
// only, and a window is shrunk from its left end as long as it makes the room: cost and bytes never
// fall when a window grows, so for each right end the tightest window is the cheapest.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "recoup/policy.h"

namespace recoup::detail {

// What it costs in addition to evict the blocks at both positions.
struct PairCost {
  std::size_t low;  // < high
  std::size_t high;
  double cost;  // >= 0, finite
};

struct Window {
  std::size_t begin;
  std::size_t end;  // past the last block
};

class WindowSearch {
 public:
  // The blocks [begin, end) of the least cost, none of them unevictable and no segment's start
  // between them, that have at least `size` bytes and hold candidates of at least `shortfall` and
  // one byte. Of equal costs the fewest bytes, then the lowest address. `costs`: by block, >= 0;
  // infinite: it ends a window. `pairs`: in any order; sorted by this. O(blocks + pairs log pairs).
  //
  // Costs are summed as integers, in units of 2^-100 of the largest one: sums are exact, so what
  // leaves a window leaves nothing behind.
  std::optional<Window> cheapest(std::span<const PoolBlock> blocks, std::span<const double> costs,
                                 std::span<PairCost> pairs, const RoomRequest& request);

 private:
  using Cost = unsigned __int128;
  struct Pair {
    std::size_t low;
    std::size_t high;
    Cost cost;
  };
  void scale(std::span<const double> costs, std::span<PairCost> pairs);

  std::vector<Cost> costs_;  // by block
  std::vector<Pair> by_low_;
  std::vector<Pair> by_high_;
};

}  // namespace recoup::detail
