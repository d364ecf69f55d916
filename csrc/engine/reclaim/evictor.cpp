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

Evictions Evictor::plan(const RoomRequest& request) {
  spiller_.reconsider();
  if (candidates_.list().empty()) {
    return {};
  }
  if (context_.victim_plan != nullptr) {
    const PlannedVictim victim = context_.victim_plan->next();
    if (victim.value.valid() && lineage_[victim.value].evictable()) {
      return {decide(victim.value, victim.by)};
    }
  }
  return policy_.spares() ? with_spared(request) : ask_policy(request);
}

Evictions Evictor::ask_policy(const RoomRequest& request) {
  const Timer timer(context_.stats.search_ns);
  Evictions named = decided(policy_.plan(candidates_, request));
  if (!policy_.needs().copies && named.size() == 1 && named[0].by == GetBack::kCheapest &&
      named[0].spills) {
    if (context_.forecast != nullptr) {
      named[0] = decide(used_last(named[0].victim));
    }
    if (const std::optional<Eviction> replayed = cheaper_replay(request, named[0])) {
      named[0] = *replayed;
    }
  }
  return named;
}

Evictions Evictor::decided(const Victims& plan) const {
  Evictions evictions;
  evictions.reserve(plan.victims.size());
  for (const ValueId victim : plan.victims) {
    evictions.push_back(decide(victim, plan.by));
  }
  return evictions;
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
      value.storage.valid() ? context_.forecast->next_use(value.storage) : std::nullopt;
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
std::optional<Eviction> Evictor::cheaper_replay(const RoomRequest& request,
                                                const Eviction& spilled) {
  const double price = price_per_byte(spilled);
  Hidden hidden(values_);
  while (hidden.count() < kMostHidden && !candidates_.list().empty()) {
    const Victims plan = policy_.plan(candidates_, request);
    if (plan.victims.size() != 1) {
      break;
    }
    const Eviction next = decide(plan.victims[0], plan.by);
    if (!next.spills) {
      return price_per_byte(next) < price ? std::optional(next) : std::nullopt;
    }
    hidden.hide(next.victim);
  }
  return std::nullopt;
}

double Evictor::price_per_byte(const Eviction& eviction) const {
  return static_cast<double>(price_of(eviction).count()) /
         static_cast<double>(lineage_[eviction.victim].size.count());
}

Evictions Evictor::would_evict(const RoomRequest& request) {
  return candidates_.list().empty() ? Evictions() : ask_policy(request);
}

// Note [Spared victims]
// A policy names one victim after another, those with the lowest scores first. If the last one is
// large, it alone may free enough bytes, and the earlier ones would be evicted in vain. So if the
// first victim does not free enough, the policy is asked for more, each time without those that it
// has named. From the last one to the first, each is spared if the others free enough. The rest is
// evicted for this allocation, one after another, as long as the earlier evictions do not raise the
// price of the next one. This bounds the cost of a greedy cover, which has no bound otherwise.
//
// If enough bytes are free, but not in one piece, victims are named until some of them, together
// with free blocks, form one range of the size. The others are spared, if all that were named cost
// kWorthSparing times as much as those that the range needs. Else the free bytes that the others
// leave are worth their price: the next requests need them.
//
// Naming takes many plans. If it was in vain, the policy alone decides for the rest of the
// allocation. For bytes that need not be contiguous, victims are named for each eviction.
//
// The victims of a list are evicted as the list says.
Evictions Evictor::with_spared(const RoomRequest& request) {
  const bool for_bytes = request.shortfall > Bytes(0);
  if (request.size == Bytes(0) || named_.for_bytes != for_bytes) {
    named_ = {.for_bytes = for_bytes};
  }
  if (const std::optional<Eviction> next = next_named()) {
    return {*next};
  }
  Evictions first = ask_policy(request);
  if (named_.in_vain) {
    return first;
  }
  Evictions needed = for_bytes ? needed_bytes(first, request) : needed_range(first, request);
  named_.in_vain = needed.empty();
  if (needed.empty()) {
    return first;
  }
  for (Eviction& each : needed) {
    each.price = price_of(each);
  }
  named_.needed = std::move(needed);
  return {named_.needed.front()};
}

// The first of the needed victims that is left. nullopt: there is none, or its price has risen, so
// that victims are named again.
std::optional<Eviction> Evictor::next_named() {
  Evictions& needed = named_.needed;
  needed.erase(needed.begin(), std::find_if(needed.begin(), needed.end(), [this](const auto& each) {
                 return lineage_.contains(each.victim) && Candidates::is_one(lineage_[each.victim]);
               }));
  if (needed.empty()) {
    return std::nullopt;
  }
  const Eviction now = decide(needed.front().victim);
  if (price_of(now) > *needed.front().price) {
    needed.clear();
    return std::nullopt;
  }
  return now;
}

// The victims without which too few bytes would be freed. Empty: see named_until.
Evictions Evictor::needed_bytes(const Evictions& first, const RoomRequest& request) {
  Bytes freed{0};
  Evictions named = named_until(
      first, [&] { return ask_policy(request); },
      [&](const Value& value) {
        freed += value.size;
        return freed >= request.shortfall;
      });
  for (std::size_t index = named.size(); index-- > 0;) {
    const Bytes without = freed - lineage_[named[index].victim].size;
    if (without >= request.shortfall) {
      freed = without;
      named.erase(named.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  return named;
}

// The victims without which no free range would be large enough. Empty: see named_until, or it is
// not worth sparing the others. Cheaper replays are not looked for, because that takes longer.
Evictions Evictor::needed_range(const Evictions& first, const RoomRequest& request) {
  const Timer timer(context_.stats.search_ns);
  ClearedRange range(context_.pool, request.size);
  const Evictions named = named_until(
      first, [&] { return decided(policy_.plan(candidates_, request)); },
      [&](const Value& value) { return range.add(value.block); });
  if (named.empty()) {
    return {};
  }
  Evictions needed;
  for (const ValueId id : range.needed()) {
    needed.push_back(*std::find_if(named.begin(), named.end(),
                                   [id](const Eviction& each) { return each.victim == id; }));
  }
  return price_of(named) >= kWorthSparing * price_of(needed) ? needed : Evictions();
}

// The first victim and those that `more` names after it, until `enough` is true for the last one.
// Empty: all candidates or kMostNamed of them are not enough.
Evictions Evictor::named_until(const Evictions& first, const std::function<Evictions()>& more,
                               const std::function<bool(const Value&)>& enough) {
  Evictions named;
  Hidden hidden(values_);
  for (Evictions next = first;
       next.size() == 1 && next[0].by == GetBack::kCheapest && named.size() < kMostNamed;
       next = more()) {
    named.push_back(next[0]);
    const ValueId id = next[0].victim;
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
  const Evictions planned = plan(request);
  evict_all(planned);
  return !planned.empty();
}

// Evicting one victim may change the price of the next one, make it non-recomputable, or end its
// record.
void Evictor::evict_all(const Evictions& evictions) {
  for (const Eviction& each : evictions) {
    if (lineage_.contains(each.victim) && lineage_[each.victim].evictable()) {
      evict(&each == &evictions.front() ? each : decide(each.victim, each.by));
    }
  }
}

void Evictor::evict(const Eviction& eviction) {
  const ValueId id = eviction.victim;
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.evictable());
  if (eviction.spills && (spiller_.spill(id) || !value.recomputable())) {
    return;
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

void Evictor::evict_planned(const PlannedVictim& victim) {
  if (lineage_[victim.value].copying) {
    context_.copy_wait->wait(victim.value);
  }
  if (lineage_.contains(victim.value) && lineage_[victim.value].evictable()) {
    evict(decide(victim.value, victim.by));
  }
}

void Evictor::evict_before_block(VictimPlan& plan) {
  for (PlannedVictim victim = plan.victim_before_block(); victim.value.valid();
       victim = plan.victim_before_block()) {
    evict_planned(victim);
  }
}

void Evictor::evict_candidates() {
  for (const ValueId id : std::vector<ValueId>(candidates_.list())) {
    if (lineage_.contains(id) && lineage_[id].evictable()) {
      evict(id);
    }
  }
}

void Evictor::evict_on_request(ValueId id) {
  context_.asked_to_evict = true;
  evict(id);
}

void Evictor::evict_everything_on_request() {
  context_.asked_to_evict = true;
  evict_candidates();
}

Eviction Evictor::decide(ValueId id, GetBack by) const {
  const Value& value = lineage_[id];
  Eviction eviction{.victim = id, .by = by, .spills = !value.recomputable()};
  if (eviction.spills || by == GetBack::kReplay) {
    return eviction;
  }
  if (const std::optional<Nanoseconds> copy = spiller_.price_of(value)) {
    const Nanoseconds replay =
        by == GetBack::kCheapest ? replay_price(id, *copy) : Nanoseconds::max();
    eviction.spills = *copy < replay;
    eviction.price = std::min(*copy, replay);
  }
  return eviction;
}

Nanoseconds Evictor::replay_price(ValueId id, Nanoseconds limit) const {
  const Nanoseconds own = lineage_[lineage_[id].producer].cost;
  return own + ancestor_cost(lineage_, id, limit - own);
}

Nanoseconds Evictor::price_of(const Eviction& eviction) const {
  if (eviction.price) {
    return *eviction.price;
  }
  return eviction.spills ? spiller_.price_of(lineage_[eviction.victim]).value_or(Nanoseconds(0))
                         : replay_price(eviction.victim);
}

Nanoseconds Evictor::price_of(const Evictions& evictions) const {
  Nanoseconds price{0};
  for (const Eviction& each : evictions) {
    price += price_of(each);
  }
  return price;
}

// Evictions that alone do not suffice are in vain if moves follow, so the price includes them.
std::optional<Offer> Evictor::offer(const RoomRequest& request, Nanoseconds lost,
                                    std::optional<Nanoseconds> limit) {
  Evictions planned = plan(request);
  if (planned.empty()) {
    return std::nullopt;
  }
  const Nanoseconds price = lost + price_of(planned);
  if (limit && price > *limit) {
    return std::nullopt;
  }
  return Offer{.price = price, .lost = price, .plan = std::move(planned)};
}

void Evictor::take(const Offer& offer) { evict_all(std::get<Evictions>(offer.plan)); }

}  // namespace recoup::detail
