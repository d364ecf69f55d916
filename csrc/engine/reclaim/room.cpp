#include "csrc/engine/reclaim/room.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {
namespace {
using SteadyClock = std::chrono::steady_clock;

// One of 61 allocations is timed. A prime, so that it does not match the period of a training step.
constexpr std::int64_t kTimedOf = 61;
constexpr const char* kInPieces = "the bytes are free, but not in one piece";
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
  if (!block) {
    context_.end_pool();
  }
  if (!block && context_.shortfall(size) <= Bytes(0)) {
    block = at ? pool_.allocate_at(*at, size) : find_block(size);
    RECOUP_CHECK(block || !at, "something is in the way");
  }
  const std::int64_t evictions = stats.evictions;
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

std::optional<BlockId> Room::find_block(Bytes size) {
  if (context_.stats.allocations % kTimedOf != 0) {
    return pool_.allocate(size, context_.placer.zone(size));
  }
  const auto start = SteadyClock::now();
  const std::optional<BlockId> block = pool_.allocate(size, context_.placer.zone(size));
  context_.stats.allocator_ns += kTimedOf * Nanoseconds(SteadyClock::now() - start).count();
  return block;
}

void Room::make_room(Bytes size) {
  const auto start = SteadyClock::now();
  Stats& stats = context_.stats;
  const auto apart = [&stats] { return stats.search_ns + stats.move_ns + stats.spill_ns; };
  const std::int64_t apart_before = apart();
  Nanoseconds lost{0};
  bool misfit = false;
  const auto too_large = [&] { return context_.charges.external + size > context_.budget; };
  bool swept = too_large();
  if (swept) {
    context_.device.sweep_external();
  }
  if (take_more(context_.shortfall(size)); context_.shortfall(size) > Bytes(0)) {
    importer_.bring_in();
  }
  while (too_large()) {
    if (!wait_for_more(context_.charges.external + size - context_.budget)) {
      reporter_.fail(size, "");
    }
  }
  for (;;) {
    const Bytes missing = context_.shortfall(size);
    if (missing <= Bytes(0)) {
      if (pool_.largest_free() >= size) {
        break;
      }
      if (!misfit) {
        misfit = true;
        count_misfit();
        take_more(size);
        if (pool_.largest_free() >= size) {
          break;
        }
      }
      lost = make_one_piece(size, lost);
      if (pool_.largest_free() >= size) {
        break;
      }
    } else if (enough_.roomy() && non_recomputables_.drop_one(missing)) {
      continue;
    }
    const bool in_vain = missing <= Bytes(0) && !can_be_one_piece(size);
    if (in_vain && use_all_addresses(size)) {
      break;
    }
    if (!in_vain && (evictor_.evict_one({.size = size, .shortfall = std::max(missing, Bytes(0))}) ||
                     evict_soft_pinned())) {
      continue;
    }
    if (!swept) {
      swept = true;
      context_.device.sweep_external();
      continue;
    }
    if (context_.copies->wait_for_all()) {
      continue;
    }
    if (in_vain || (!non_recomputables_.drop_one(missing) && !importer_.bring_in())) {
      // An op that is run again with defragmented memory need not wait.
      const bool fragmented = missing <= Bytes(0);
      if (fragmented && use_all_addresses(size)) {
        break;
      }
      if (!(fragmented && enough_.again()) && wait_for_more(fragmented ? size : missing)) {
        continue;
      }
      if (missing <= Bytes(0)) {
        reporter_.fail(size, kInPieces, true);
      }
      reporter_.fail(size, "");
    }
  }
  const Nanoseconds spent = SteadyClock::now() - start;
  context_.room_time += spent;
  stats.bookkeeping_ns += spent.count() - (apart() - apart_before);
}

// Makes `size` contiguous bytes free, when as many are free in total, as far as that is possible.
// `lost`: the price of what has been evicted for the same allocation since then. Returns it with
// that of the evictions made here.
Nanoseconds Room::make_one_piece(Bytes size, Nanoseconds lost) {
  if (enough_.roomy() && mover_.bring_together(size)) {
    return lost;
  }
  if (enough_.roomy() && enough_.again() && !context_.replaying) {
    reporter_.fail(size, kInPieces, true);  // the op is run again with defragmented memory
  }
  if (!can_be_one_piece(size)) {
    return lost;
  }
  while (pool_.largest_free() < size) {
    const std::optional<Nanoseconds> more = reclaim({.size = size, .shortfall = Bytes(0)}, lost);
    if (!more) {
      break;
    }
    lost = *more;
  }
  return lost;
}

// Note [Evictions in vain]
// Blocks that must not move, such as a running kernel's, divide the pool into ranges. If no range
// has `size` bytes, neither evictions nor moves help. The op is then run again with its operands
// together, or is out of budget.
bool Room::can_be_one_piece(Bytes size) const {
  return Compactor(pool_).largest_window([this](ValueId owner) {
    return owner.valid() && context_.lineage[owner].clearable();
  }) >= size;
}

// Note [End of the pool]
// The pool has addresses for the whole budget. Bytes that are charged outside of it can then never
// be used in it at the same time. If blocks were placed at all addresses nevertheless, their pages
// would be given back and faulted in again in each step: Note [Footprint]. So the pool ends where
// the charges outside begin, and makes room as if it had no addresses beyond. A block that fits
// nowhere else is placed beyond. While it is there, the pool ends with it, and others are placed
// before it. When as many bytes have been placed beyond as the pool holds, all blocks slide down.
void Room::leave_beyond() {
  if (placed_beyond_ > pool_.used()) {
    placed_beyond_ = Bytes(0);
    mover_.slide();
    context_.end_pool();
  }
}

// Moves the end of the pool beyond the charges outside, for one allocation: Note [End of the pool].
// False: this does not help, and the end stays.
bool Room::use_all_addresses(Bytes size) {
  // First the op is run again with defragmented memory.
  if (enough_.again() || pool_.capacity() == context_.addresses_end()) {
    return false;
  }
  pool_.set_end(context_.addresses_end());
  if (pool_.largest_free() >= size) {
    return true;
  }
  context_.end_pool();
  return false;
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
  if (step->way == &mover_ && context_.planned != nullptr) {
    context_.planned->on_room_by_moves();
  }
  return step->offer.lost;
}

// nullopt: no step is planned now, or it cannot be done.
std::optional<Room::Step> Room::planned_step(const RoomRequest& request, Nanoseconds lost) {
  PlannedVictims* const planned = context_.planned;
  if (planned == nullptr) {
    return std::nullopt;
  }
  const std::optional<Nanoseconds> limit = planned->moves_next();
  if (!limit && !planned->next().valid()) {
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

void Room::count_misfit() {
  constexpr std::int64_t kMillion = 1'000'000;
  ++context_.stats.misfits;
  context_.stats.misfit_ppm +=
      kMillion - kMillion * pool_.largest_free().count() / pool_.free_bytes().count();
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
