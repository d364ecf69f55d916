#include "csrc/engine/reclaim/evictor.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/engine/base/timer.h"
#include "csrc/engine/state/hidden.h"
#include "csrc/lineage/neighborhood.h"
#include "csrc/pool/cleared_range.h"

namespace recoup::detail {
namespace {

// Limit of victims to skip because they would be spilled, in search of one to replay.
constexpr std::size_t kMostHidden = 16;
// Limit of victims that are named for one request before any is spared.
constexpr std::size_t kMostNamed = 64;
// Victims are spared for one range if the named ones cost this many times as much as the needed.
constexpr int kWorthSparing = 5;

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
  return policy_.spares() ? with_spared(first, request) : first;
}

EvictionPlan Evictor::ask_policy(const RoomRequest& request) {
  const Timer timer(context_.stats.search_ns);
  EvictionPlan plan = policy_.plan(candidates_, request);
  if (plan.by == GetBack::kCheapest && plan.victims.size() == 1 &&
      would_spill(plan.victims[0], plan.by)) {
    const ValueId spilled =
        context_.planned == nullptr ? plan.victims[0] : used_last(plan.victims[0]);
    const ValueId replayed = cheaper_replay(request, spilled);
    plan.victims[0] = replayed.valid() ? replayed : spilled;
  }
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
// changed. This bounds the cost of a greedy cover, which has no bound otherwise.
//
// If enough bytes are free, but not in one piece, victims are named until some of them, together
// with free blocks, form one range of the size. The others are spared, if all that were named cost
// kWorthSparing times as much as those that the range needs. Else the free bytes that the others
// leave are worth their price: the next requests need them.
//
// The victims of a list are evicted as the list says.
EvictionPlan Evictor::with_spared(const EvictionPlan& first, const RoomRequest& request) {
  const std::vector<ValueId> needed =
      request.shortfall > Bytes(0) ? needed_bytes(first, request) : needed_range(first, request);
  return needed.empty() ? first : EvictionPlan{.victims = {needed.front()}, .by = first.by};
}

// The victims without which too few bytes would be freed. Empty: see named_until.
std::vector<ValueId> Evictor::needed_bytes(const EvictionPlan& first, const RoomRequest& request) {
  Bytes freed{0};
  std::vector<ValueId> named = named_until(
      first, [&] { return ask_policy(request); },
      [&](const Value& value) {
        freed += value.size;
        return freed >= request.shortfall;
      });
  for (std::size_t index = named.size(); index-- > 0;) {
    const Bytes without = freed - lineage_[named[index]].size;
    if (without >= request.shortfall) {
      freed = without;
      named.erase(named.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  return named;
}

// The victims without which no free range would be large enough. Empty: see named_until, or it is
// not worth sparing the others. Cheaper replays are not looked for, because that takes longer.
std::vector<ValueId> Evictor::needed_range(const EvictionPlan& first, const RoomRequest& request) {
  const Timer timer(context_.stats.search_ns);
  ClearedRange range(context_.pool, request.size);
  std::vector<ValueId> named = named_until(
      first, [&] { return policy_.plan(candidates_, request); },
      [&](const Value& value) { return range.add(value.block); });
  if (named.empty()) {
    return {};
  }
  std::vector<ValueId> needed = range.needed();
  const EvictionPlan all{.victims = std::move(named), .by = first.by};
  const EvictionPlan rest{.victims = needed, .by = first.by};
  return price_of(all) >= kWorthSparing * price_of(rest) ? needed : std::vector<ValueId>();
}

// The first victim and those that `more` names after it, until `enough` is true for the last one.
// Empty: all candidates or kMostNamed of them are not enough.
std::vector<ValueId> Evictor::named_until(const EvictionPlan& first,
                                          const std::function<EvictionPlan()>& more,
                                          const std::function<bool(const Value&)>& enough) {
  std::vector<ValueId> named;
  Hidden hidden(values_);
  for (EvictionPlan next = first;
       next.victims.size() == 1 && next.by == GetBack::kCheapest && named.size() < kMostNamed;
       next = more()) {
    const ValueId id = next.victims[0];
    named.push_back(id);
    if (enough(lineage_[id])) {
      return named;
    }
    hidden.hide(id);
    if (candidates_.list().empty()) {
      break;
    }
  }
  return {};
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
