// The budget with which all that a program has done so far would have fitted without an eviction.
#pragma once

#include <algorithm>

#include "csrc/engine/state/context.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Enough]
// An error says which budget would have been enough, and that must be true. What a run with
// evictions would do in another budget is not known without running it; a run without any is. So
// the figure is a budget in which nothing has to be evicted: at each of the program's allocations
//
//   what its tensors take, evicted or not        + what kernels hold    + the new block
//   + dead leaves, which are kept for replays    + what is outside      + slack for pieces
//
// and the most of it counts. Slack: n blocks that may not move leave n + 1 pieces, so a free range
// of r is there when r + n (r - a) bytes are free, where all is a multiple of a. A kernel that can
// be run again finds its operands slid together, so only what it allocates itself counts, in the
// order in which it does, and what is pinned.
// While a budget is enough in this sense the engine does not evict (Enough::roomy): dead leaves go
// first, and pieces are moved at any price. So a run in the budget that an error named holds at
// each point no more than this counts, and gets where the error was.
class Enough {
 public:
  // It must outlive this.
  explicit Enough(Context& context) : context_(context) {}

  // An op begins, with so many operands that may not move while it runs; `again`: they may when it
  // fails, because it can be run again.
  void begin_op(int operands, bool again) { begin(now(), operands, again); }
  void end_op() { begin({}, 0, false); }
  // The running op cannot be run again.
  void run_once() { again_ = false; }
  // The running op failed and is run again, for the last time, with its operands slid together. In
  // a larger budget it would be too, so the same counts.
  void begin_retry() {
    begin(now(), operands_, again_);
    is_retry_ = true;
  }
  [[nodiscard]] bool again() const { return again_ && !is_retry_; }

  // The program asks for a block. In a pool of segments a free one is found when there are more of
  // them than blocks.
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
  // Bytes outside of the pool: no address matters.
  void charge(Bytes size) { count(now().plain + size, Bytes(0)); }
  [[nodiscard]] Bytes most() const { return context_.enough; }
  // The same without slack: enough if no memory is lost to fragmentation.
  [[nodiscard]] Bytes likely() const { return likely_; }
  // Blocks that may not be moved now.
  [[nodiscard]] int immovable() const {
    return context_.charges.immovable_blocks + context_.charges.kernel_blocks + operands_;
  }
  // Whether the budget is enough so far: then nothing is evicted.
  [[nodiscard]] bool roomy() const { return most() <= context_.options.budget; }

 private:
  struct State {
    Bytes plain;           // all of the sum above but the new block and slack
    Bytes held;            // of it, what kernels hold
    int held_blocks;       // in so many blocks
    int immovable_blocks;  // other blocks that stay in place: pinned, escaped
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
    likely_ = std::max(likely_, taken);
    context_.enough = std::max(context_.enough, taken + slack);
  }

  Context& context_;
  Bytes likely_{0};
  Bytes allocated_{0};  // by the running kernel, freed or not
  State before_{};      // when it began
  int operands_ = 0;
  bool again_ = false;
  bool is_retry_ = false;
};

}  // namespace recoup::detail
