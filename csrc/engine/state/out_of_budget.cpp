#include "csrc/engine/state/out_of_budget.h"

#include <algorithm>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {
namespace {

// A tier is proposed if at least this part of the budget cannot be recomputed.
constexpr int kWorthATier = 8;

Bytes with_quarter(Bytes size) { return size + Bytes(size.count() / 4); }

}  // namespace

Bytes OutOfBudgetReporter::all_resident() const {
  Bytes all = context_.charges.kernel_held + context_.charges.external;
  Bytes largest{0};
  std::size_t inputs = 0;
  context_.lineage.for_each_value([&](ValueId, const Value& value) {
    all += value.external == nullptr ? value.size : Bytes(0);
    largest = std::max(largest, value.size);
  });
  Bytes workspace{0};
  context_.lineage.for_each_op([&](OpId, const Op& op) {
    workspace = std::max(workspace, context_.pool.round_up(op.workspace + op.forgotten));
    inputs = std::max(inputs, op.inputs.size() + op.outputs.size() + op.written.size());
  });
  const Bytes gap = std::max(largest, workspace);
  return all + workspace +
         Bytes((context_.charges.immovable_blocks + context_.charges.kernel_blocks +
                static_cast<std::int64_t>(inputs)) *
               gap.count());
}

// Why the spill tier lacks non-recomputable values that it could hold, if it does, and the capacity
// that it needs for them.
void OutOfBudgetReporter::add_spill_tier(OutOfBudgetReport& report) const {
  std::string why;
  Bytes refused{0};
  Bytes forbidden{0};
  context_.lineage.for_each_value([&](ValueId, const Value& value) {
    const bool could =
        !value.recomputable() && value.block.valid() && context_.tier.takes(value.nbytes);
    (value.flags.off_tier ? forbidden : refused) +=
        could && !value.spillable ? value.size : Bytes(0);
  });
  if (context_.tier.closed()) {
    why = "the spill tier could not be written, so nothing more is spilled";
  } else if (refused > Bytes(0)) {
    why = str_cat(recoup::to_string(refused),
                  " that cannot be recomputed do not fit in the spill tier of ",
                  recoup::to_string(context_.options.spill));
    report.tier_full = true;
    report.next_spill = context_.options.spill + with_quarter(refused);
  } else if (forbidden > Bytes(0)) {
    why = str_cat(recoup::to_string(forbidden),
                  " that cannot be recomputed must not be spilled, by the rules of this run");
  } else if (context_.options.spill == Bytes(0) &&
             report.non_recomputable > Bytes(report.budget.count() / kWorthATier)) {
    report.next_spill = with_quarter(report.non_recomputable);
  }
  if (!why.empty()) {
    report.reason += report.reason.empty() ? why : str_cat("; ", why);
  }
}

// Note [Next budget]
// The least budget that works is unknown: only a simulation of the whole run finds it. It exceeds
// `least` and, if a run in a smaller budget fails wherever one in a larger budget does, the budget
// in force. So a quarter more than either is at most 1.25 times the least budget.
Bytes OutOfBudgetReporter::next_budget(const OutOfBudgetReport& report) const {
  return std::clamp(with_quarter(std::max(report.least, report.budget)), report.budget + Bytes(1),
                    report.enough);
}

void OutOfBudgetReporter::fail(Bytes asked, std::string reason, bool fragmented) const {
  OutOfBudgetReport report = report_of(context_.budget, asked, std::move(reason));
  report.fragmented = fragmented;
  report.enough = enough_.most();
  // Values that were evicted on request must be restored even in a budget that needs no eviction. A
  // budget for everything on record suffices for that.
  if (context_.asked_to_evict || report.enough <= context_.budget) {
    report.enough = std::max(report.enough, all_resident() + asked);
  }
  if (report.enough <= context_.budget) {
    report.enough += context_.budget;
  }
  if (context_.options.block_size > Bytes(0) &&
      asked > context_.pool.round_up(context_.options.block_size)) {
    report.enough = Bytes(0);
    report.fragmented = false;
    report.reason = "the allocation is larger than a block of the pool (block_size)";
  } else {
    report.next = next_budget(report);
  }
  if (context_.observer != nullptr) {
    context_.observer->on_out_of_budget(report);
  }
  throw OutOfBudget(std::move(report));
}

void OutOfBudgetReporter::fail_to_shrink(Bytes budget, Bytes stays, std::string reason,
                                         Announce announce) const {
  OutOfBudgetReport report = report_of(budget, Bytes(0), std::move(reason));
  report.shrinking = true;
  // The budget in force has room for everything.
  report.enough = std::min(stays, context_.budget);
  report.next = report.enough;
  if (context_.observer != nullptr && announce == Announce::kToObserver) {
    context_.observer->on_out_of_budget(report);
  }
  throw OutOfBudget(std::move(report));
}

OutOfBudgetReport OutOfBudgetReporter::report_of(Bytes budget, Bytes asked,
                                                 std::string reason) const {
  OutOfBudgetReport report{
      .op = context_.running_op.empty() ? "an allocation" : std::string(context_.running_op),
      .asked = asked,
      .budget = context_.budget,
      .external = context_.charges.external,
      .non_recomputable = {},
      .pinned = {},
      .workspace = context_.charges.kernel_held,
      .evictable = {},
      .largest_window = {},
      .least = {},
      .next = {},
      .next_spill = {},
      .enough = {},
      .shared = {},
      .reason = std::move(reason),
      .immovable = enough_.immovable()};
  report.least = context_.charges.external + asked +
                 (context_.replaying ? Bytes(0) : context_.charges.kernel_held);
  Bytes kept{0};
  context_.lineage.for_each_value([&](ValueId, const Value& value) {
    kept += value.flags.stays ? value.size : Bytes(0);
    if (!value.block.valid()) {
      // Bytes outside the pool that no storage refers to could be freed.
      report.least -=
          value.external != nullptr && !value.flags.among_outside && !value.storage.valid()
              ? value.size
              : Bytes(0);
      return;
    }
    const bool stays = !value.recomputable() && !value.flags.frozen && !value.spillable;
    if (value.storage.valid() && (stays || value.fixed > 0 || value.flags.stays)) {
      report.least += value.size;
    }
    if (value.hard_pins > 0 || value.escaped || value.flags.stays) {
      report.pinned += value.size;
    } else if (!value.recomputable() && !value.spillable) {
      report.non_recomputable += value.size;
    } else {
      report.evictable += value.size;
    }
  });
  add_spill_tier(report);
  if (kept > Bytes(0)) {
    report.reason += str_cat(report.reason.empty() ? "" : "; ", "the rules of this run keep ",
                             recoup::to_string(kept));
  }
  if (context_.more != nullptr) {
    report.reason += str_cat(report.reason.empty() ? "" : "; ", context_.more->reason());
    report.shared = context_.more->total();
  }
  report.largest_window = std::min(Compactor(context_.pool).largest_window([this](ValueId owner) {
    return owner.valid() && context_.lineage[owner].clearable();
  }),
                                   context_.budget - context_.charges.external -
                                       report.non_recomputable - report.pinned - report.workspace);
  if (report.least <= budget) {
    report.least = Bytes(0);
  }
  return report;
}

}  // namespace recoup::detail
