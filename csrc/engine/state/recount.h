// Recount: counts anew what values and storages hold, and compares it with the charges.
#pragma once

#include "csrc/engine/base/held_storage.h"
#include "csrc/engine/state/context.h"

namespace recoup::detail {

class Recount {
 public:
  // All arguments must outlive this object.
  Recount(const Context& context, const HeldStorages& storages);

  // Throws InternalError on the first difference. `at_rest`: see Values::check.
  void check(bool at_rest) const;

 private:
  void check_value(ValueId id, const Value& value, bool at_rest) const;

  const Pool& pool_;
  const Lineage& lineage_;
  const Tier& tier_;
  const Charges& charges_;
  Bytes outside_;
  const HeldStorages& storages_;
};

}  // namespace recoup::detail
