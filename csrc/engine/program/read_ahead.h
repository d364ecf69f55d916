// ReadAhead: fetches what coming ops will use while the running one is at work.
#pragma once

#include <new>
#include <vector>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Reading ahead]
// Where the next ops are known, what they use and the spill tier has is read while the op before
// runs: in their order, until a share of the budget is on its way. What is free is used for it, and
// what the policy gives up, as long as that costs no copy now and none of the ops up to there uses
// it: that has to go anyway when the op asks for what is read. What would have to be written first
// is written behind.
class ReadAhead {
 public:
  struct Parts {
    Values& values;
    Pages& pages;
    Enough& enough;
    Evictor& evictor;
    Spiller& spiller;
    AsyncCopies& copies;
  };
  // All must outlive it.
  ReadAhead(Context& context, const Parts& parts);

  // What the running op needs is there.
  void before_kernel() {
    if (context_.planned != nullptr && context_.charges.spilled > Bytes(0)) {
      try {
        read_next();
      } catch (const std::bad_alloc&) {
        // It is read when it is asked for.
      }
    }
  }

 private:
  void read_next();
  bool read(ValueId id);
  bool make_room(Bytes size);
  [[nodiscard]] bool used_soon(ValueId id) const;

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Pages& pages_;
  Enough& enough_;
  Evictor& evictor_;
  Spiller& spiller_;
  AsyncCopies& copies_;
  std::vector<StorageId> storages_;  // of an op; kept for its capacity
  std::vector<ValueId> soon_;        // used by the ops up to the one that is looked at
};

}  // namespace recoup::detail
