// WindowSearch: the cheapest run of neighboring blocks that makes room (Coop's sliding window).
//
//   |##|....|aaa|..|bb|####|cc|.....|d|###|     `#` cannot be evicted and ends a window
//       [--------------]    [---------]
//
// A free block costs nothing; a block that can only be moved costs its move. Both ends advance
// only. A window is shrunk from its left end as long as it makes enough room. Cost and bytes never
// fall when a window grows, so for each right end the tightest window is the cheapest.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "recoup/policy.h"

namespace recoup::detail {

// Additional cost if the blocks at both positions are evicted.
struct PairCost {
  std::size_t low;  // < high
  std::size_t high;
  double cost;  // >= 0, finite
};

struct Window {
  std::size_t begin;
  std::size_t end;  // one past the last block
};

class WindowSearch {
 public:
  // The cheapest run of blocks [begin, end) that has at least `size` bytes and whose candidates
  // have at least `shortfall` bytes and at least 1 byte. It contains no block of infinite cost and
  // does not extend across the start of a segment. Of equal costs the fewest bytes win, then the
  // lowest address. `costs`: cost of each block, >= 0; infinite: it ends a window. `pairs`: in any
  // order; sorted by this function. O(blocks + pairs log pairs).
  //
  // Costs are summed as integers, in units of 2^-100 of the largest cost. Sums are exact, so a
  // block that leaves a window leaves no rounding error.
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
