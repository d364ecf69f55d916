// WriteBehind: writes values that will be spilled next, while ops run.
#pragma once

#include <functional>

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Write-behind]
// A victim with a copy in the spill tier is evicted at once; any other must be written first. So
// after an op, if memory has been short in this scope and few writes are under way, the policy is
// asked for its next victims, until these, the values being written and the free bytes are a share
// of the budget. The first victim that would have to be written is written, and so on. This makes
// no decisions: what is evicted, and when, is still up to the policy; a copy only makes it cheaper.
class WriteBehind {
 public:
  struct Parts {
    Values& values;
    Evictor& evictor;
    Spiller& spiller;
    AsyncCopies& copies;
  };
  // All arguments must outlive this object.
  WriteBehind(Context& context, const Parts& parts);

  // An op of the program has ended.
  void after_op() {
    if (context_.tier.open()) {
      write_next();
    }
  }

 private:
  void write_next();
  void write_planned(Bytes most, const std::function<ValueId()>& next_value);
  [[nodiscard]] ValueId next_to_write(Bytes wanted);

  Context& context_;
  Values& values_;
  Evictor& evictor_;
  Spiller& spiller_;
  AsyncCopies& copies_;
  // In evictions and spills: when to look for something to write again, after a look in vain.
  std::int64_t next_look_ = 0;
  std::int64_t rest_ = 1;
};

}  // namespace recoup::detail
