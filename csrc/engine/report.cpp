// What an out-of-budget error says: what holds the memory, and which budget would do.
#include <algorithm>

#include "csrc/engine/engine.h"

namespace recoup::detail {

// In a pool of segments a free one is found when there are more of them than blocks.
void Engine::count_enough(Bytes size) {
  Enough::State now = plain_state();
  enough_.allocate(now, size);
  if (options_.block_size > Bytes(0)) {
    const auto blocks =
        static_cast<std::int64_t>(lineage_.value_count()) + charges_.kernel_blocks + 1;
    now.plain = charges_.external;
    enough_.charge(now, Bytes(blocks * pool_.round_up(options_.block_size).count()));
  }
}

// A budget in which everything on record could have its bytes at once, and a replay what it needs
// beside them, so that nothing is evicted to get something else back.
Bytes Engine::all_resident() const {
  Bytes all = charges_.kernel_held + charges_.external;
  Bytes largest{0};
  std::size_t inputs = 0;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    all += value.external == nullptr ? value.size : Bytes(0);
    largest = std::max(largest, value.size);
  });
  Bytes beside{0};
  lineage_.for_each_op([&](OpId, const Op& op) {
    beside = std::max(beside, pool_.round_up(op.workspace + op.forgotten));
    inputs = std::max(inputs, op.inputs.size() + op.outputs.size() + op.written.size());
  });
  const Bytes gap = std::max(largest, beside);
  return all + beside +
         Bytes((charges_.islands + charges_.kernel_blocks + static_cast<std::int64_t>(inputs)) *
               gap.count());
}

void Engine::throw_out_of_budget(Bytes asked, std::string reason, bool fragmented) const {
  OutOfBudgetReport report{.op = running_op_.empty() ? "an allocation" : std::string(running_op_),
                           .asked = asked,
                           .budget = options_.budget,
                           .external = charges_.external,
                           .leaves = {},
                           .pinned = {},
                           .workspace = charges_.kernel_held,
                           .evictable = {},
                           .largest_window = {},
                           .least = {},
                           .enough = {},
                           .reason = std::move(reason),
                           .fragmented = fragmented};
  report.least =
      charges_.external + asked + (replayer_ == nullptr ? charges_.kernel_held : Bytes(0));
  lineage_.for_each_value([&](ValueId, const Value& value) {
    if (!value.block.valid()) {
      // What nobody holds from outside need not be there.
      report.least -= value.external != nullptr && !value.among_outside && !value.storage.valid()
                          ? value.size
                          : Bytes(0);
      return;
    }
    if (value.storage.valid() && ((value.leaf() && !value.frozen) || value.fixed > 0)) {
      report.least += value.size;
    }
    if (value.hard_pins > 0 || value.escaped) {
      report.pinned += value.size;
    } else if (value.leaf()) {
      report.leaves += value.size;
    } else {
      report.evictable += value.size;
    }
  });
  report.largest_window = std::min(
      pool_.largest_window([this](std::uint32_t owner) {
        return owner != 0 && (lineage_[ValueId(owner - 1)].evictable() || movable(owner));
      }),
      options_.budget - charges_.external - report.leaves - report.pinned - report.workspace);
  report.enough = enough_.most();
  // What somebody else had evicted has to come back even where nothing need be: in a budget for all
  // that is on record it does.
  if (told_to_evict_ || report.enough <= options_.budget) {
    report.enough = std::max(report.enough, all_resident() + asked);
  }
  if (report.enough <= options_.budget) {
    report.enough += options_.budget;
  }
  if (options_.block_size > Bytes(0) && asked > pool_.round_up(options_.block_size)) {
    report.enough = Bytes(0);
    report.reason = "it is larger than a block of the pool";
  }
  throw OutOfBudget(std::move(report));
}

}  // namespace recoup::detail
