#include "csrc/engine/reclaim/room.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {
namespace {
using SteadyClock = std::chrono::steady_clock;

// One of 61 allocations is timed. A prime, so that it does not match the period of a training step.
constexpr std::int64_t kTimedOf = 61;
}  // namespace

Room::Room(Context& context, const Parts& parts)
    : context_(context),
      pool_(context.pool),
      values_(parts.values),
      non_recomputables_(parts.non_recomputables),
      pages_(parts.pages),
      evictor_(parts.evictor),
      mover_(parts.mover),
      importer_(parts.importer),
      enough_(parts.enough),
      reporter_(parts.reporter),
      disturber_(parts.disturber),
      handover_(parts.handover),
      copy_waiter_(context),
      ways_{&parts.evictor, &parts.mover, &copy_waiter_} {}

void Room::set_replay(const WaitingReplay* replay) {
  replay_ = replay;
  context_.replaying = replay != nullptr;
}

Values::KernelBlock Room::take_block(Bytes nbytes, std::optional<PoolOffset> at) {
  Stats& stats = context_.stats;
  ++stats.allocations;
  const Bytes size = pool_.round_up(nbytes);
  if (disturber_.active()) [[unlikely]] {
    disturber_.before_allocation(size);
  }
  std::optional<BlockId> block = at ? std::nullopt : handover_.take(nbytes);
  const std::int64_t evictions = stats.evictions;
  if (!block) {
    context_.end_pool();
  }
  if (!block && !at && context_.victim_plan != nullptr && context_.victim_plan->places()) {
    block = take_planned(size);
  }
  if (!block && context_.shortfall(size) <= Bytes(0)) {
    block = at ? pool_.allocate_at(*at, size) : find_block(size);
    RECOUP_CHECK(block || !at, "something is in the way");
  }
  if (!block) {
    leave_beyond();
    make_room(size);
    block = find_block(size);
    RECOUP_CHECK(block.has_value());
    context_.end_pool();
    stats.made_room_bytes += size.count();
  }
  if (pool_.offset(*block) + size > context_.pool_end()) [[unlikely]] {
    placed_beyond_ += size;
  }
  Values::KernelBlock taken = values_.charge_block(*block, size);
  pages_.touch(pool_.offset(*block), size);
  if (stats.evictions > evictions) {
    ++stats.pressed_allocations;
    stats.pressed_free_bytes += (context_.budget - context_.charged()).count();
  }
  context_.count_peak();
  RECOUP_CHECK(context_.charged() <= context_.budget);
  return taken;
}

// Allocates the block where the running step's plan says, after the evictions that precede it.
// nullopt: the plan does not say, or something is in the way.
std::optional<BlockId> Room::take_planned(Bytes size) {
  VictimPlan& plan = *context_.victim_plan;
  const std::optional<PlannedPlace> place = plan.begin_block(size);
  if (!place) {
    return std::nullopt;
  }
  const auto timed = [this](const auto& measure) {
    const auto start = SteadyClock::now();
    measure();
    context_.room_time += SteadyClock::now() - start;
  };
  if (const Arrangement arrangement = plan.take_arrangement(); !arrangement.empty()) {
    timed([&] {
      for (const PlannedVictim& victim : arrangement.victims) {
        evictor_.evict_planned(victim);
      }
      if (mover_.arrange(arrangement.moves) && context_.copies->wait_for_all()) {
        (void)mover_.arrange(plan.take_arrangement().moves);
      }
    });
  }
  if (const PlannedVictim first = plan.victim_before_block(); first.value.valid()) {
    timed([&] {
      evictor_.evict_planned(first);
      evictor_.evict_before_block(plan);
    });
  }
  std::optional<BlockId> block = context_.allocate_at(*place, size);
  if (!block && context_.copies->any_dead()) {
    timed([&] {
      context_.copies->wait_for_all();
      block = context_.allocate_at(*place, size);
    });
  }
  const std::int64_t moves = context_.stats.moves;
  if (!block) {
    timed([&] { block = mover_.clear_and_allocate(*place, size); });
  }
  plan.end_block(block.has_value(), context_.stats.moves > moves);
  return block;
}

std::optional<BlockId> Room::find_block(Bytes size) {
  if (context_.stats.allocations % kTimedOf != 0) {
    return pool_.allocate(size, context_.placer.zone(size));
  }
  const auto start = SteadyClock::now();
  const std::optional<BlockId> block = pool_.allocate(size, context_.placer.zone(size));
  context_.stats.allocator_ns += kTimedOf * Nanoseconds(SteadyClock::now() - start).count();
  return block;
}

// Takes one step, and returns the new value of `lost`. nullopt: nothing can be done.
std::optional<Nanoseconds> Room::reclaim(const RoomRequest& request, Nanoseconds lost) {
  std::optional<Step> step = planned_step(request, lost);
  if (!step) {
    step = cheapest_step(request, lost);
  }
  if (!step) {
    return std::nullopt;
  }
  step->way->take(step->offer);
  if (step->way == &mover_ && context_.victim_plan != nullptr) {
    context_.victim_plan->on_room_by_moves();
  }
  return step->offer.lost;
}

// nullopt: no step is planned now, or it cannot be done.
std::optional<Room::Step> Room::planned_step(const RoomRequest& request, Nanoseconds lost) {
  VictimPlan* const planned = context_.victim_plan;
  if (planned == nullptr) {
    return std::nullopt;
  }
  const std::optional<Nanoseconds> limit = planned->moves_next();
  if (!limit && !planned->next().value.valid()) {
    return std::nullopt;
  }
  Reclaimer& way = limit ? static_cast<Reclaimer&>(mover_) : evictor_;
  std::optional<Offer> offer = way.offer(request, lost, limit);
  return offer ? std::optional(Step{.way = &way, .offer = std::move(*offer)}) : std::nullopt;
}

// nullopt: nothing can be done.
std::optional<Room::Step> Room::cheapest_step(const RoomRequest& request, Nanoseconds lost) {
  std::optional<Step> cheapest;
  for (Reclaimer* way : ways_) {
    const auto limit = cheapest ? std::optional(cheapest->offer.price) : std::nullopt;
    if (std::optional<Offer> offer = way->offer(request, lost, limit)) {
      cheapest = Step{.way = way, .offer = std::move(*offer)};
    }
  }
  return cheapest;
}

// Frees some bytes at any address. False: nothing is left to free.
bool Room::free_some(Bytes missing) {
  return evictor_.evict_one({.size = Bytes(0), .shortfall = missing}) || evict_soft_pinned() ||
         context_.copies->wait_for_all() || non_recomputables_.drop_one(missing);
}

bool Room::evict_soft_pinned() {
  const ValueId victim = replay_ == nullptr ? ValueId() : replay_->soft_victim();
  if (victim.valid()) {
    evictor_.evict(victim);
  }
  return victim.valid();
}

void Room::charge_external(Bytes size) {
  enough_.charge(size);
  const auto missing = [&] { return context_.shortfall(size); };
  if (take_more(missing()); missing() > Bytes(0)) {
    context_.device.sweep_external();
    importer_.bring_in();
  }
  while (missing() > Bytes(0)) {
    if (!(enough_.roomy() && non_recomputables_.drop_one(missing())) && !free_some(missing()) &&
        !wait_for_more(missing())) {
      reporter_.fail(
          size,
          "they are charged for memory outside the pool, such as a tensor made outside the scope");
    }
  }
  context_.charge_outside(size);
  context_.count_peak();
  pages_.charged_outside();
}

bool Room::defragment(std::span<const ValueId> pinned, Bytes need) {
  context_.copies->wait_for_all();
  for (ValueId id : pinned) {
    --context_.lineage[id].fixed;
  }
  const AtEnd fix_again([&] {
    for (ValueId id : pinned) {
      ++context_.lineage[id].fixed;
    }
  });
  const auto missing = [&] { return context_.shortfall(need); };
  // The slide below makes the free bytes contiguous.
  while (missing() > Bytes(0) && free_some(missing())) {
  }
  mover_.slide();
  return missing() <= Bytes(0);
}

void Room::take_more(Bytes missing) {
  if (context_.more != nullptr && missing > Bytes(0)) {
    grow_by(context_.more->take(missing));
  }
}

bool Room::wait_for_more(Bytes missing) {
  const bool waits = context_.more != nullptr && context_.alternatives == 0;
  const Bytes got = waits ? context_.more->wait_for(missing) : Bytes(0);
  grow_by(got);
  return got > Bytes(0);
}

void Room::grow_by(Bytes more) {
  if (more > Bytes(0)) {
    grow(context_.budget + more);
  }
}

}  // namespace recoup::detail
