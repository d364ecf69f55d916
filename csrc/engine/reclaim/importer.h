// Importer: brings storages that were made outside into the pool.
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
// pool's, so the engine cannot move or free it. With a spill tier it does not have to stay. The
// first time that memory is short, all of it is brought in: each storage is copied into the pool,
// and its own memory is freed. Then it holds a non-recomputable value like any other. The largest
// storage comes first. A storage is spilled if there is no room for two copies of it; its freed
// bytes are room for the copies of the others.
//
// Storages stay outside if other code may use their address: escaped and pinned ones. Code that
// registers a storage pins it if it must stay.
class Importer {
 public:
  struct Parts {
    Values& values;
    Spiller& spiller;
    Pages& pages;
  };
  // All arguments must outlive this object.
  Importer(Context& context, const Parts& parts);

  // Called when memory is short. Brings in all storages that may move. Those that a running op uses
  // are left for the next call.
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
  std::optional<Bytes> left_;  // bytes that stay outside; nullopt: some may move later
};

}  // namespace recoup::detail
