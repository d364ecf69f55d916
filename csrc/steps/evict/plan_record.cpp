#include "csrc/steps/evict/plan_record.h"

#include <utility>

namespace recoup::detail {

PlanRecord::PlanRecord(const StepEvictions& plan) {
  for (const EvictionList::Entry& entry : plan.list.entries()) {
    evictions_.push_back({.ops = entry.ops, .op = entry.victim.op, .slot = entry.victim.slot});
  }
  for (const BlockPlan::Entry& entry : plan.blocks.entries) {
    blocks_.push_back({.ops = entry.ops,
                       .evictions = entry.evictions,
                       .size = entry.size,
                       .at = entry.place.at,
                       .other = entry.place.other});
  }
  for (const BlockPlan::Start& start : plan.blocks.starts) {
    starts_.push_back({.size = Bytes(start.kind.size),
                       .op = static_cast<std::uint32_t>(start.kind.op),
                       .slot = static_cast<std::uint32_t>(start.kind.slot),
                       .storage = static_cast<std::uint32_t>(start.kind.storage),
                       .at = start.place.at,
                       .other = start.place.other});
  }
}

StepEvictions PlanRecord::read(const TracePlanLists& lists, Nanoseconds expected) {
  std::vector<EvictionList::Entry> entries;
  for (const TraceEviction& each : lists.evictions) {
    entries.push_back({.ops = each.ops, .victim = {.op = each.op, .slot = each.slot}});
  }
  BlockPlan blocks;
  for (const TraceBlock& each : lists.blocks) {
    blocks.entries.push_back({.ops = each.ops,
                              .evictions = each.evictions,
                              .size = each.size,
                              .place = {.at = each.at, .other = each.other}});
  }
  for (const TraceStart& each : lists.starts) {
    blocks.starts.push_back({.kind = {.size = each.size.count(),
                                      .op = each.op,
                                      .slot = each.slot,
                                      .storage = each.storage},
                             .place = {.at = each.at, .other = each.other}});
  }
  return {.list = EvictionList(std::move(entries)),
          .blocks = std::move(blocks),
          .expected = {.total = expected, .replays = {}, .others = expected},
          .by_policy = std::nullopt};
}

}  // namespace recoup::detail
