// NonRecomputables: finds the dependents of a non-recomputable value, cuts them off, and frees dead
// non-recomputable values.
#pragma once

#include "csrc/base/few.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

// The values that can be recomputed from a non-recomputable value, found by a walk forward that
// stops at values with content.
struct Dependents {
  // Most walks reach few values, and an allocation costs more than such a walk.
  using List = Few<ValueId, 16>;
  List evicted;   // reached values without content
  List needed;    // those of `evicted` that a storage or a pin holds
  List resident;  // first values with content on each path, resident or spilled
};

class NonRecomputables {
 public:
  // Both arguments must outlive this object.
  NonRecomputables(Context& context, Values& values);

  // kToBytes: the walk stops at every value with content. kPastDead: it continues past dead ones,
  // because evicted values that depend on them keep them.
  enum class Reach : std::uint8_t { kToBytes, kPastDead };
  [[nodiscard]] Dependents dependents(ValueId source, Reach reach = Reach::kToBytes) const;
  // Note [Freeze] in freezer.h. Cuts all `dependents` from the non-recomputable value. Those that
  // are needed must be resident by now.
  void freeze(ValueId source, const Dependents& dependents);
  void freeze(ValueId source) { freeze(source, dependents(source)); }
  // Frees a dead non-recomputable value that is not worth its bytes: Note [Dead sources].
  void consider(ValueId id);
  // Frees one of them, whatever it is worth, if that helps to get `missing` bytes. False: none was
  // freed.
  bool drop_one(Bytes missing);

 private:
  [[nodiscard]] bool is_written_from_small(OpId op) const;
  Context& context_;
  Lineage& lineage_;
  Values& values_;
};

}  // namespace recoup::detail
