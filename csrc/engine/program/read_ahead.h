// ReadAhead: fetches spilled values that the next ops use, while the running op is at work.
#pragma once

#include <cstdint>
#include <new>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Reading ahead]
// If the next ops are known, the spilled values that they use are read while earlier ops run: in
// the order of use, until a share of the budget is in reads under way. They get free bytes, and
// those of the policy's victims, if evicting these needs no write now and no op up to that point
// uses them: such victims would be evicted anyway when the op needs the value that is read. A
// victim that must be written first is written asynchronously.
//
// If all values that the next ops use are resident, they are looked at again after a spill, or when
// an eighth of these ops has ended.
//
// In a step whose copies are planned, values are read where the plan says instead.
class ReadAhead {
 public:
  struct Parts {
    Values& values;
    Pages& pages;
    Enough& enough;
    Evictor& evictor;
    Mover& mover;
    Spiller& spiller;
    AsyncCopies& copies;
  };
  // All arguments must outlive this object.
  ReadAhead(Context& context, const Parts& parts);

  // The operands of the running op are resident.
  void before_kernel() {
    if (context_.forecast != nullptr && context_.charges.spilled > Bytes(0)) {
      try {
        VictimPlan* const plan = context_.victim_plan;
        if (plan != nullptr && plan->copies()) {
          read_planned(*plan);
        } else {
          read_next();
        }
      } catch (const std::bad_alloc&) {
        // The value is read when an op needs it.
      }
    }
  }

 private:
  void read_next();
  void read_planned(VictimPlan& plan);
  bool read(ValueId id);
  void read_into(BlockId block, ValueId id);
  bool make_room(Bytes size);
  [[nodiscard]] bool used_soon(ValueId id) const { return seen_.get(id) == look_; }
  // Adds a value to those that are used soon. False: it is one already.
  bool add_soon(ValueId id);
  [[nodiscard]] std::int64_t spills() const {
    return context_.stats.spills + context_.stats.clean_spills;
  }

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Pages& pages_;
  Enough& enough_;
  Evictor& evictor_;
  Mover& mover_;
  Spiller& spiller_;
  AsyncCopies& copies_;
  std::vector<StorageId> storages_;  // of one op; a member to reuse its capacity
  // Number of the last look ahead in which an op up to the examined one uses the value.
  ById<ValueId, std::uint64_t> seen_;
  std::uint64_t look_ = 0;  // number of looks ahead
  // After a look that found all values resident.
  std::uint32_t rest_ = 0;            // number of ops without another look
  std::int64_t spills_at_look_ = -1;  // spills() at that time
};

}  // namespace recoup::detail
