// WriteBehind: writes what will be spilled next while ops run.
#pragma once

#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/engine/tier/spiller.h"

namespace recoup::detail {

// Note [Writing behind]
// A victim of which the spill tier has a copy is given up at once; any other is waited for. So
// after an op, when memory has been short in this scope and few copies are under way, the policy is
// asked what it would give up next, until that, what is being written and what is free are a share
// of the budget. The first of these that would have to be written is written, and so on. Nothing is
// decided by that: what is given up, and when, the policy says when there is need; a copy makes it
// cheaper, no more.
class WriteBehind {
 public:
  struct Parts {
    Values& values;
    Evictor& evictor;
    Spiller& spiller;
    AsyncCopies& copies;
  };
  // All must outlive it.
  WriteBehind(Context& context, const Parts& parts);

  // An op of the program has ended.
  void after_op() {
    if (context_.tier.open()) {
      write_next();
    }
  }

 private:
  void write_next();
  [[nodiscard]] ValueId next_to_write(Bytes wanted);

  Context& context_;
  Values& values_;
  Evictor& evictor_;
  Spiller& spiller_;
  AsyncCopies& copies_;
  std::int64_t nothing_at_ = -1;  // what had been given up when there was nothing to write
};

}  // namespace recoup::detail
