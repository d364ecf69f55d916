#include "csrc/engine/reclaim/evictor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/engine/state/hidden.h"
#include "csrc/lineage/neighborhood.h"

namespace recoup::detail {
namespace {

// Limit of victims to skip because they would be spilled, in search of one to replay.
constexpr std::size_t kMostHidden = 16;
// Limit of victims that are named for one request before any is spared.
constexpr std::size_t kMostNamed = 64;

}  // namespace

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
      return {.victims = {victim}, .by = GetBack::kCheapest};
    }
  }
  const EvictionPlan first = ask_policy(request);
  return policy_.spares() && request.shortfall > Bytes(0) ? with_spared(first, request) : first;
}

EvictionPlan Evictor::ask_policy(const RoomRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  EvictionPlan plan = policy_.plan(candidates_, request);
  if (plan.by == GetBack::kCheapest && plan.victims.size() == 1 &&
      would_spill(plan.victims[0], plan.by)) {
    const ValueId spilled =
        context_.planned == nullptr ? plan.victims[0] : used_last(plan.victims[0]);
    const ValueId replayed = cheaper_replay(request, spilled);
    plan.victims[0] = replayed.valid() ? replayed : spilled;
  }
  context_.stats.search_ns += Nanoseconds(std::chrono::steady_clock::now() - start).count();
  return plan;
}

// Note [The farthest next use is spilled]
// Training uses its state once per step, so the state that was not used for longest is used next.
// If the next uses are known, the victim that the policy would spill is replaced by the one with
// the lowest price per byte and per op until its next use.
ValueId Evictor::used_last(ValueId victim) const {
  std::optional<double> lowest = price_of_absence(victim);
  if (!lowest) {
    return victim;
  }
  ValueId best = victim;
  for (const ValueId id : candidates_.list()) {
    if (lineage_[id].recomputable() && !lineage_[id].clean()) {
      continue;
    }
    if (const std::optional<double> price = price_of_absence(id); price && *price < *lowest) {
      lowest = price;
      best = id;
    }
  }
  return best;
}

// The price of spilling a value, per byte and per op until its next use; nullopt: unknown.
std::optional<double> Evictor::price_of_absence(ValueId id) const {
  const Value& value = lineage_[id];
  const std::optional<std::uint32_t> use =
      value.storage.valid() ? context_.planned->next_use(value.storage) : std::nullopt;
  const std::optional<Nanoseconds> price = spiller_.price_of(value);
  if (!use || !price) {
    return std::nullopt;
  }
  return static_cast<double>(price->count()) /
         (static_cast<double>(value.size.count()) * (1.0 + *use));
}

// Note [Replay before spill]
// A policy divides the cost of a victim by its age, assuming that values unused for long will not
// be used soon. For state that is wrong: it is used once per step, however long ago that was, and
// each copy has its price. So if the policy would spill, the first victim that it would replay is
// compared with the one to spill by price per byte alone. The former is evicted if it is cheaper.
ValueId Evictor::cheaper_replay(const RoomRequest& request, ValueId spilled) {
  const double price = price_per_byte(spilled);
  Hidden hidden(values_);
  while (hidden.count() < kMostHidden && !candidates_.list().empty()) {
    const EvictionPlan plan = policy_.plan(candidates_, request);
    if (plan.victims.size() != 1) {
      break;
    }
    const ValueId victim = plan.victims[0];
    if (!would_spill(victim, plan.by)) {
      return price_per_byte(victim) < price ? victim : ValueId();
    }
    hidden.hide(victim);
  }
  return {};
}

double Evictor::price_per_byte(ValueId id) const {
  const Nanoseconds price = price_of(id, GetBack::kCheapest);
  return static_cast<double>(price.count()) / static_cast<double>(lineage_[id].size.count());
}

EvictionPlan Evictor::would_evict(const RoomRequest& request) {
  return candidates_.list().empty() ? EvictionPlan() : ask_policy(request);
}

// Note [Spared victims]
// A policy names one victim after another, those with the lowest scores first. If the last one is
// large, it alone may free enough bytes, and the earlier ones would be evicted in vain. So if the
// first victim does not free enough, the policy is asked for more, each time without those that it
// has named. From the last one to the first, each is spared if the others free enough. The first
// of the rest is evicted, and the policy is asked again, because the costs of its neighbors have
// changed. This bounds the cost of a greedy cover, which has no bound otherwise. The victims of a
// list are evicted as the list says.
EvictionPlan Evictor::with_spared(const EvictionPlan& first, const RoomRequest& request) {
  struct Named {
    ValueId id;
    Bytes size;
  };
  std::vector<Named> named;
  Bytes freed{0};
  Hidden hidden(values_);
  for (EvictionPlan next = first;;) {
    if (next.victims.size() != 1 || next.by != GetBack::kCheapest || named.size() == kMostNamed) {
      return first;
    }
    const ValueId id = next.victims[0];
    named.push_back({.id = id, .size = lineage_[id].size});
    freed += lineage_[id].size;
    hidden.hide(id);
    if (freed >= request.shortfall) {
      break;
    }
    if (candidates_.list().empty()) {
      return first;
    }
    next = ask_policy({.size = request.size, .shortfall = request.shortfall - freed});
  }
  ValueId kept = named.front().id;
  for (auto each = named.rbegin(); each != named.rend(); ++each) {
    if (freed - each->size >= request.shortfall) {
      freed -= each->size;
    } else {
      kept = each->id;
    }
  }
  return {.victims = {kept}, .by = GetBack::kCheapest};
}

bool Evictor::evict_one(const RoomRequest& request) {
  const EvictionPlan planned = plan(request);
  evict_all(planned);
  return !planned.victims.empty();
}

// Evicting one victim may make the next one non-recomputable, or end its record.
void Evictor::evict_all(const EvictionPlan& plan) {
  for (ValueId victim : plan.victims) {
    if (lineage_.contains(victim) && lineage_[victim].evictable()) {
      evict(victim, plan.by);
    }
  }
}

void Evictor::evict(ValueId id, GetBack by) {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.evictable());
  if (would_spill(id, by)) {
    if (spiller_.spill(id) || !value.recomputable()) {
      return;
    }
  }
  if (value.storage.valid() &&
      !context_.device.detach(values_[value.storage].handle, context_.pool.offset(value.block))) {
    values_.disown(id);
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
  evict_all({.victims = candidates_.list(), .by = GetBack::kCheapest});
}

void Evictor::evict_as_told(ValueId id) {
  context_.told_to_evict = true;
  evict(id);
}

void Evictor::evict_everything_as_told() {
  context_.told_to_evict = true;
  evict_candidates();
}

bool Evictor::would_spill(ValueId id, GetBack by) const {
  if (!lineage_[id].recomputable()) {
    return true;
  }
  if (by == GetBack::kReplay) {
    return false;
  }
  const std::optional<Nanoseconds> price = spiller_.price_of(lineage_[id]);
  return price && (by == GetBack::kCopy || *price < replay_price(id));
}

Nanoseconds Evictor::replay_price(ValueId id) const {
  return lineage_[lineage_[id].producer].cost + ancestor_cost(lineage_, id);
}

Nanoseconds Evictor::price_of(ValueId id, GetBack by) const {
  return would_spill(id, by) ? spiller_.price_of(lineage_[id]).value_or(Nanoseconds(0))
                             : replay_price(id);
}

Nanoseconds Evictor::price_of(const EvictionPlan& plan) const {
  Nanoseconds price{0};
  for (const ValueId victim : plan.victims) {
    price += price_of(victim, plan.by);
  }
  return price;
}

// Evictions that alone do not suffice are in vain if moves follow, so the price includes them.
std::optional<Offer> Evictor::offer(const RoomRequest& request, Nanoseconds lost,
                                    std::optional<Nanoseconds> limit) {
  EvictionPlan planned = plan(request);
  if (planned.victims.empty()) {
    return std::nullopt;
  }
  const Nanoseconds price = lost + price_of(planned);
  if (limit && price > *limit) {
    return std::nullopt;
  }
  return Offer{.price = price, .lost = price, .plan = std::move(planned)};
}

void Evictor::take(const Offer& offer) { evict_all(std::get<EvictionPlan>(offer.plan)); }

}  // namespace recoup::detail
