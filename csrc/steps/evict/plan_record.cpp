#include "csrc/steps/evict/plan_record.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

PlanRecord::PlanRecord(const StepEvictions& plan) {
  for (const EvictionList::Entry& entry : plan.list.entries()) {
    evictions_.push_back({.ops = entry.ops,
                          .op = entry.victim.op,
                          .slot = entry.victim.slot,
                          .spills = entry.spills});
  }
  for (const BlockPlan::Entry& entry : plan.blocks.entries) {
    blocks_.push_back({.ops = entry.ops,
                       .evictions = entry.evictions,
                       .size = entry.size,
                       .at = entry.place.at,
                       .other = entry.place.other});
  }
  for (const BlockPlan::Fetch& fetch : plan.blocks.fetches) {
    blocks_.push_back({.ops = fetch.ops,
                       .evictions = fetch.evictions,
                       .size = fetch.size,
                       .at = fetch.place.at,
                       .other = fetch.place.other,
                       .op = fetch.value.op,
                       .slot = fetch.value.slot});
  }
  std::ranges::stable_sort(blocks_, {}, &TraceBlock::ops);
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
    entries.push_back(
        {.ops = each.ops, .victim = {.op = each.op, .slot = each.slot}, .spills = each.spills});
  }
  BlockPlan blocks;
  for (const TraceBlock& each : lists.blocks) {
    if (each.op != TraceBlock::kNone) {
      blocks.fetches.push_back({.ops = each.ops,
                                .evictions = each.evictions,
                                .size = each.size,
                                .value = {.op = each.op, .slot = each.slot},
                                .place = {.at = each.at, .other = each.other}});
      continue;
    }
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
