// Slowdown: the cost of a run's replays relative to that of its ops, and when it is too high.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/base/strings.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/out_of_budget.h"

namespace recoup::detail {

// Note [Slow runs]
// A budget near the least that works can make each op replay thousands of others: the program seems
// to hang, and often fails at last. So the engine compares the whole run's replays with the whole
// run's ops after each op that replayed. Only measured costs are times, and a test that evicts
// after each op is slow on purpose. Replays of less than ten seconds in all are never too slow.
// After an error, and after a change of the budget, only later replays count: the program may have
// freed memory, or may restore its tensors in a larger budget.
class Slowdown {
 public:
  // The arguments must outlive this object.
  Slowdown(Context& context, const OutOfBudgetReporter& reporter)
      : context_(context),
        reporter_(reporter),
        counts_(context.options.cost_model == CostModel::kMeasured &&
                !context.options.evict_after_op),
        budget_(context.budget) {}

  // Called after replays for an op of the program.
  void after_replays() {
    if (!counts_) {
      return;
    }
    if (context_.budget != budget_) {
      forgive();
    }
    const std::int64_t replayed = context_.stats.replay_cost_ns - forgiven_ns_;
    if (replayed < kPatienceNs || context_.stats.op_ns <= 0) {
      return;
    }
    const double ratio =
        1 + static_cast<double>(replayed) / static_cast<double>(context_.stats.op_ns);
    const double most = context_.options.max_slowdown;
    exceeded_ = most > 0 && ratio > most;
    if (ratio > kSlow && !reported_) {
      reported_ = true;
      context_.device.on_slow(ratio, most, budget_);
    }
  }

  // Throws OutOfBudget if the run was too slow after the last replays, in the budget in force.
  void require_speed() {
    if (!exceeded_) [[likely]] {
      return;
    }
    const bool in_force = context_.budget == budget_;
    forgive();
    if (in_force) {
      reporter_.fail(Bytes(0), str_cat("with its replays the run takes more than ",
                                       context_.options.max_slowdown,
                                       " times as long as its ops alone (max_slowdown)"));
    }
  }

 private:
  static constexpr double kSlow = 5.0;  // ratio from which the device is informed
  static constexpr std::int64_t kPatienceNs = 10'000'000'000;

  void forgive() {
    forgiven_ns_ = context_.stats.replay_cost_ns;
    budget_ = context_.budget;
    exceeded_ = false;
  }

  Context& context_;
  const OutOfBudgetReporter& reporter_;
  const bool counts_;
  Bytes budget_;
  std::int64_t forgiven_ns_ = 0;  // the cost of replays that do not count, in nanoseconds
  bool exceeded_ = false;
  bool reported_ = false;
};

}  // namespace recoup::detail
