// Compactor: plans moves of a pool's blocks that bring free bytes together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "csrc/pool/compaction.h"
#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

class Compactor {
 public:
  using Movable = std::function<bool(ValueId owner)>;
  static constexpr Bytes kNoLimit{INT64_MAX};

  // The pool must outlive this object.
  explicit Compactor(const Pool& pool) : pool_(pool) {}

  // The cheapest plan found that leaves a free range of `size`; nullopt if none costs at most
  // `limit`. Only blocks with an owner for which movable(owner) is true may move. The cost of a
  // move is its bytes plus `a_move`. Tried in order of cost: slide blocks together between two
  // immovable ones; move the blocks of one window into free blocks elsewhere (best fit, largest
  // first); both. A lower limit makes the search faster. See Note [Compaction] in compaction.cpp.
  [[nodiscard]] std::optional<Compaction> plan(Bytes size, const Movable& movable,
                                               Bytes a_move = Bytes(0), Bytes limit = kNoLimit);
  // Slides every movable block as far down as possible, in address order.
  [[nodiscard]] Compaction plan_slide(const Movable& movable);
  // The largest range that would be free if every block with clearable(owner) were removed. The
  // search ends at the first range that has `enough` bytes.
  [[nodiscard]] Bytes largest_window(const Movable& clearable, Bytes enough = kNoLimit) const;

 private:
  [[nodiscard]] std::optional<Compaction> plan_window(Bytes size, const Movable& movable,
                                                      Bytes a_move, Bytes limit);
  [[nodiscard]] std::optional<Compaction> search_windows(Bytes size, const Movable& movable,
                                                         Bytes a_move, Bytes limit);

  const Pool& pool_;
  CompactionScratch scratch_;
};

}  // namespace recoup::detail
