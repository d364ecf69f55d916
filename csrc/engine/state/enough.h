// Enough: the smallest known budget in which the program would have run so far without an eviction.
#pragma once

#include <algorithm>

#include "csrc/engine/state/context.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Enough]
// An OutOfBudget error names a budget that would have been enough, and that must be true. What a
// run with evictions does in another budget is unknown without running it. For a run without
// evictions it is known. So the figure is a budget in which nothing has to be evicted. At each
// allocation of the program it is the sum of
//
//   live tensors, evicted or not                 + what kernels hold    + the new block
//   + dead sources, which are kept for replays   + what is outside      + slack for fragmentation
//
// and the largest sum counts. Slack: n immovable blocks leave n + 1 gaps, so a free range of r
// bytes exists if r + n (r - a) bytes are free, where all sizes are multiples of a. A kernel that
// can be run again finds its operands slid together. So for it only its own allocations, in their
// order, and pinned blocks count.
//
// While a budget is enough in this sense, the engine does not evict (Enough::roomy): dead sources
// are freed first, and blocks are moved at any price. So a run in the budget that an error named
// never holds more than this count, and reaches the point where the error was.
class Enough {
 public:
  // The argument must outlive this object.
  explicit Enough(Context& context) : context_(context) {}

  // An op begins. `operands`: the number of its blocks that must not move while it runs. `again`:
  // they may move after a failure, because the op can be run again.
  void begin_op(int operands, bool again) { begin(now(), operands, again); }
  void end_op() { begin({}, 0, false); }
  // The running op cannot be run again after a failure.
  void run_once() { again_ = false; }
  // The running op failed and is run again, for the last time, with its operands slid together. In
  // a larger budget it would be run again too, so the same is counted.
  void begin_retry() {
    begin(now(), operands_, again_);
    is_retry_ = true;
  }
  [[nodiscard]] bool again() const { return again_ && !is_retry_; }

  // The program allocates a block. In a pool of segments a free segment exists if there are more
  // segments than blocks.
  void allocate(Bytes size) {
    const State state = now();
    allocated_ += size;
    const std::int64_t gap = (size - context_.options.alignment).count();
    Bytes slack;
    if (again_) {
      const Bytes own = allocated_ - size - (state.held - before_.held);
      slack = std::clamp(own, Bytes(0),
                         Bytes(std::max(0, state.held_blocks - before_.held_blocks) * gap)) +
              Bytes((state.immovable_blocks + before_.held_blocks) * gap);
    } else {
      slack = Bytes((state.immovable_blocks + state.held_blocks + operands_) * gap);
    }
    count(state.plain + size, slack);
    if (const Bytes segment = context_.options.block_size; segment > Bytes(0)) {
      const auto blocks =
          static_cast<std::int64_t>(context_.lineage.value_count()) + state.held_blocks + 1;
      count(context_.charges.external + Bytes(blocks * context_.pool.round_up(segment).count()),
            Bytes(0));
    }
  }
  // Charges bytes outside the pool, where no address matters.
  void charge(Bytes size) { count(now().plain + size, Bytes(0)); }
  [[nodiscard]] Bytes most() const { return context_.enough; }
  // The number of blocks that must not be moved now.
  [[nodiscard]] int immovable() const {
    return context_.charges.immovable_blocks + context_.charges.kernel_blocks + operands_;
  }
  // Whether the budget has been enough so far. Nothing is evicted while it is.
  [[nodiscard]] bool roomy() const { return most() <= context_.budget; }

 private:
  struct State {
    Bytes plain;           // the sum above without the new block and the slack
    Bytes held;            // the part of `plain` that kernels hold
    int held_blocks;       // the number of blocks that kernels hold
    int immovable_blocks;  // the number of other immovable blocks: pinned or escaped
  };

  [[nodiscard]] State now() const {
    const Charges& charges = context_.charges;
    return {.plain = charges.plain + charges.dead_sources + charges.kernel_held + charges.external,
            .held = charges.kernel_held,
            .held_blocks = charges.kernel_blocks,
            .immovable_blocks = charges.immovable_blocks};
  }
  void begin(const State& state, int operands, bool again) {
    operands_ = operands;
    again_ = again;
    is_retry_ = false;
    allocated_ = Bytes(0);
    before_ = state;
  }
  void count(Bytes taken, Bytes slack) {
    context_.enough = std::max(context_.enough, taken + slack);
  }

  Context& context_;
  Bytes allocated_{0};  // total size that the running kernel has allocated, freed or not
  State before_{};      // when the running op began
  int operands_ = 0;
  bool again_ = false;
  bool is_retry_ = false;
};

}  // namespace recoup::detail
