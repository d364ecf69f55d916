// Validates the plans of a trace.
#include <algorithm>

#include "csrc/base/strings.h"
#include "csrc/trace/validator.h"

namespace recoup::detail {

// The lists are not checked against the step, which may never run again.
void TraceValidator::add_plan(const TracePlan& plan, const TracePlanLists& lists) {
  place_ = {.noun = "event", .number = events_};
  check_count(++plans_, "plans");
  check_count(evictions_ += lists.evictions.size(), "evictions of plans");
  check_count(planned_blocks_ += lists.blocks.size() + lists.starts.size(), "blocks of plans");
  check_size(plan.budget);
  if (plan.expected < Nanoseconds(0) || plan.expected > kMostCost) {
    fail(str_cat("a plan expects a cost of ", plan.expected.count(), " ns, which is out of range"));
  }
  const std::span<const TraceEviction> evictions = lists.evictions;
  if (!plan.listed && !(evictions.empty() && lists.blocks.empty() && lists.starts.empty())) {
    fail("a plan without a list of evictions names evictions or blocks");
  }
  const auto before = [](const auto& a, const auto& b) { return a.ops < b.ops; };
  if (!std::is_sorted(evictions.begin(), evictions.end(), before)) {
    fail("a plan names evictions that are not in the order of ops");
  }
  if (!std::is_sorted(lists.blocks.begin(), lists.blocks.end(), before)) {
    fail("a plan names blocks that are not in the order of ops");
  }
  if ((!evictions.empty() && evictions.back().ops > kMostPlannedOps) ||
      (!lists.blocks.empty() && lists.blocks.back().ops > kMostPlannedOps)) {
    fail(str_cat("a plan covers more than ", kMostPlannedOps, " ops"));
  }
  for (const TraceEviction& eviction : evictions) {
    check_planned_value(eviction.op, eviction.slot);
  }
  for (const TraceBlock& block : lists.blocks) {
    check_planned_value(block.op, block.slot);
    check_planned(block.size, block.at);
    check_planned(block.size, block.other);
  }
  for (const TraceStart& start : lists.starts) {
    check_planned(start.size, start.at);
    check_planned(start.size, start.other);
    if (start.storage > 0) {
      check_planned_value(TraceEviction::kStorage, start.storage - 1);
    }
  }
  ++events_;
}

void TraceValidator::check_planned_value(std::uint32_t op, std::uint32_t slot) const {
  if (op == TraceEviction::kStorage && slot >= storages_.size()) {
    fail(str_cat("a plan names storage ", slot, ", which does not exist yet"));
  }
}

void TraceValidator::check_planned(Bytes size, PoolOffset at) const {
  check_size(size);
  check_size(at);
  const std::int64_t alignment = alignment_.count();
  if (size <= Bytes(0) || size.count() % alignment != 0 || at.count() % alignment != 0) {
    fail(str_cat("a plan has a block of ", size.count(), " bytes at ", at.count(),
                 ", which are not aligned to ", alignment));
  }
}

}  // namespace recoup::detail
