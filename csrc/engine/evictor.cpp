#include "csrc/engine/evictor.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/lineage/neighborhood.h"

namespace recoup::detail {

Evictor::Evictor(Context& context, Values& values, Candidates& candidates, EvictionPolicy& policy,
                 Spiller& spiller)
    : context_(context),
      lineage_(context.lineage),
      values_(values),
      candidates_(candidates),
      policy_(policy),
      spiller_(spiller) {}

EvictionPlan Evictor::plan(const RoomRequest& request) {
  spiller_.reconsider();
  if (candidates_.list().empty()) {
    return {};
  }
  if (context_.planned != nullptr) {
    if (const ValueId victim = context_.planned->next(); victim.valid()) {
      return {.victims = {victim}};
    }
  }
  return ask_policy(request);
}

EvictionPlan Evictor::ask_policy(const RoomRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  EvictionPlan plan = policy_.plan(candidates_, request);
  context_.stats.search_ns += Nanoseconds(std::chrono::steady_clock::now() - start).count();
  return plan;
}

std::vector<ValueId> Evictor::would_evict(const RoomRequest& request) {
  return candidates_.list().empty() ? std::vector<ValueId>() : ask_policy(request).victims;
}

bool Evictor::evict_one(const RoomRequest& request) {
  const EvictionPlan planned = plan(request);
  evict_all(planned.victims);
  return !planned.victims.empty();
}

// What becomes of one victim may make a leaf of the next one, or end its record.
void Evictor::evict_all(std::span<const ValueId> victims) {
  for (ValueId victim : victims) {
    if (lineage_.contains(victim) && lineage_[victim].evictable()) {
      evict(victim);
    }
  }
}

void Evictor::evict(ValueId id) {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.evictable());
  if (would_spill(id)) {
    if (spiller_.spill(id) || value.leaf()) {
      return;
    }
  }
  if (value.storage.valid() &&
      !context_.device.detach(values_[value.storage].handle, context_.pool.offset(value.block))) {
    values_.forsake(id);
    return;
  }
  ++context_.stats.evictions;
  context_.stats.evicted_bytes += value.size.count();
  if (context_.observer != nullptr) {
    context_.observer->on_evict(id);
  }
  values_.transition(id, Residency::kEvicted);
  values_.drain();
}

void Evictor::evict_candidates() {
  const std::vector<ValueId> all = candidates_.list();
  evict_all(all);
}

void Evictor::evict_as_told(ValueId id) {
  context_.told_to_evict = true;
  evict(id);
}

void Evictor::evict_everything_as_told() {
  context_.told_to_evict = true;
  evict_candidates();
}

bool Evictor::would_spill(ValueId id) const {
  if (lineage_[id].leaf()) {
    return true;
  }
  const std::optional<Nanoseconds> price = spiller_.price_of(lineage_[id]);
  return price && *price < replay_price(id);
}

Nanoseconds Evictor::replay_price(ValueId id) const {
  return lineage_[lineage_[id].producer].cost + exact_neighborhood_cost(lineage_, id);
}

Nanoseconds Evictor::price_of(const EvictionPlan& plan) const {
  Nanoseconds price{0};
  for (ValueId victim : plan.victims) {
    const std::optional<Nanoseconds> spilled = spiller_.price_of(lineage_[victim]);
    price += lineage_[victim].leaf()
                 ? spilled.value_or(Nanoseconds(0))
                 : std::min(replay_price(victim), spilled.value_or(Nanoseconds::max()));
  }
  return price;
}

std::optional<Nanoseconds> Evictor::offer(const RoomRequest& request, Nanoseconds lost,
                                          std::optional<Nanoseconds> limit) {
  offered_ = plan(request);
  if (offered_.victims.empty()) {
    return std::nullopt;
  }
  offered_price_ = price_of(offered_);
  const Nanoseconds price = lost + offered_price_;
  return limit && price > *limit ? std::nullopt : std::optional(price);
}

void Evictor::take(Nanoseconds& lost) {
  lost += offered_price_;
  evict_all(offered_.victims);
}

}  // namespace recoup::detail
