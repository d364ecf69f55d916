// Leaves: what hangs on a leaf, how it is cut off, and which dead leaves can go.
#pragma once

#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

// What can be recomputed from a leaf, as far as a walk forward through values without bytes comes.
struct Dependents {
  std::vector<ValueId> evicted;   // reached, without bytes
  std::vector<ValueId> needed;    // those of them that somebody holds
  std::vector<ValueId> resident;  // first ones with bytes, here or spilled, on each path, to stay
};

class Leaves {
 public:
  // Both must outlive it.
  Leaves(Context& context, Values& values);

  // Past dead values with bytes too: what is evicted behind them keeps them.
  enum class Reach : std::uint8_t { kToBytes, kPastDead };
  [[nodiscard]] Dependents dependents(ValueId leaf, Reach reach = Reach::kToBytes) const;
  // Note [Freeze] in freezer.h. Cuts everything that was found from the leaf; what is needed of it
  // is resident by now.
  void freeze(ValueId leaf, const Dependents& dependents);
  void freeze(ValueId leaf) { freeze(leaf, dependents(leaf)); }
  // Lets a dead leaf go that is not worth its bytes: Note [Dead leaves].
  void consider(ValueId id);
  // Lets one go for `missing` bytes, whatever it is worth, if that helps.
  bool drop_one(Bytes missing);

 private:
  Context& context_;
  Lineage& lineage_;
  Values& values_;
};

}  // namespace recoup::detail
