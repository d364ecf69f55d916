// Importer: brings in storages that were made outside of the pool.
#pragma once

#include <optional>
#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Storages from outside]
// A model that was made before the scope is charged and stays where it is: its memory is not the
// pool's, so it can neither be moved nor taken. With a spill tier it need not stay. The first time
// that room is short all of it is brought in: copied into the pool, and its own memory is given
// back; then it is a non-recomputable value like all others. The largest comes first. It is spilled
// when there is no room for two copies, and its bytes are room for the copies of the others.
//
// What somebody outside may look at stays: what escaped, and what is pinned. Who makes a storage
// known pins what must stay.
class Importer {
 public:
  struct Parts {
    Values& values;
    Spiller& spiller;
    Pages& pages;
  };
  // All must outlive it.
  Importer(Context& context, const Parts& parts);

  // Room is short. Brings in what may be; what a running op uses is left for the next time.
  void bring_in();

 private:
  [[nodiscard]] bool may_leave(const Value& value) const;
  [[nodiscard]] std::vector<ValueId> importable() const;
  [[nodiscard]] bool import(ValueId id);
  void put(ValueId id, BlockId block);

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Spiller& spiller_;
  Pages& pages_;
  std::optional<Bytes> left_;  // bytes outside that stay; none: some may not
};

}  // namespace recoup::detail
