// Compactor: plans moves of a pool's blocks, so that free bytes come together.
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

  // It must outlive this.
  explicit Compactor(const Pool& pool) : pool_(pool) {}

  // The cheapest plan found that leaves a free range of `size`, where only blocks with an owner for
  // which movable(owner) is true may move, and a move costs its bytes and `a_move`; nullopt when
  // none is found that costs at most `limit`. Tried in order of cost: slide blocks together between
  // two unmovable ones; move the blocks of one window into free blocks elsewhere (best fit, largest
  // first); both. The lower the limit, the fewer blocks are looked at. See Note [Compaction] in
  // compaction.cpp.
  [[nodiscard]] std::optional<CompactionPlan> plan(Bytes size, const Movable& movable,
                                                   Bytes a_move = Bytes(0), Bytes limit = kNoLimit);
  // Moves every movable block as far down as it goes, in address order.
  [[nodiscard]] CompactionPlan plan_slide(const Movable& movable);
  // The largest range that would be free if every block with clearable(owner) were gone.
  [[nodiscard]] Bytes largest_window(const Movable& clearable);

 private:
  [[nodiscard]] std::optional<CompactionPlan> plan_window(Bytes size, const Movable& movable,
                                                          Bytes a_move, Bytes limit);
  [[nodiscard]] std::optional<CompactionPlan> search_windows(Bytes size, const Movable& movable,
                                                             Bytes a_move, Bytes limit);

  const Pool& pool_;
  CompactionScratch scratch_;
};

}  // namespace recoup::detail
