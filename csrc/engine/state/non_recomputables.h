// NonRecomputables: what hangs on a non-recomputable value, how it is cut off, and which dead
// leaves can go.
#pragma once

#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

// What can be recomputed from a non-recomputable value, as far as a walk forward through values
// without bytes comes.
struct Dependents {
  std::vector<ValueId> evicted;   // reached, without bytes
  std::vector<ValueId> needed;    // those of them that somebody holds
  std::vector<ValueId> resident;  // first ones with bytes, here or spilled, on each path, to stay
};

class NonRecomputables {
 public:
  // Both must outlive it.
  NonRecomputables(Context& context, Values& values);

  // Past dead values with bytes too: what is evicted behind them keeps them.
  enum class Reach : std::uint8_t { kToBytes, kPastDead };
  [[nodiscard]] Dependents dependents(ValueId source, Reach reach = Reach::kToBytes) const;
  // Note [Freeze] in freezer.h. Cuts everything that was found from the non-recomputable value;
  // what is needed of it is resident by now.
  void freeze(ValueId source, const Dependents& dependents);
  void freeze(ValueId source) { freeze(source, dependents(source)); }
  // Lets a dead non-recomputable value go that is not worth its bytes: Note [Dead sources].
  void consider(ValueId id);
  // Lets one go for `missing` bytes, whatever it is worth, if that helps.
  bool drop_one(Bytes missing);

 private:
  Context& context_;
  Lineage& lineage_;
  Values& values_;
};

}  // namespace recoup::detail
