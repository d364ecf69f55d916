// How room is made for one allocation: the measures of Note [Making room], and how free bytes are
// brought together.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/pool/compactor.h"

namespace recoup::detail {
namespace {
constexpr const char* kInPieces = "the bytes are free, but not in one piece";
}  // namespace

// They are tried in this order, from the first one again after one that has helped.
const Room::Measure Room::kMeasures[] = {
    &Room::grow_once,              // the budget grows by memory that needs no wait
    &Room::join_pieces,            // blocks move, or evictions that cost less are done
    &Room::drop_while_roomy,       // a dead source is dropped
    &Room::use_addresses_in_vain,  // only if nothing else can help
    &Room::evict_candidates,
    &Room::evict_held,  // values that waiting replays hold are evicted
    &Room::sweep,
    &Room::end_copies,
    &Room::drop_source,
    &Room::import,
    &Room::use_addresses,
    &Room::await_more,
};

void Room::make_room(Bytes size) {
  using SteadyClock = std::chrono::steady_clock;
  const auto start = SteadyClock::now();
  Stats& stats = context_.stats;
  const auto apart = [&stats] { return stats.search_ns + stats.move_ns + stats.spill_ns; };
  const std::int64_t apart_before = apart();
  Need need{.size = size};
  evictor_.begin_room();
  make_budget_room(need);
  while (lacks(need)) {
    if (!std::any_of(std::begin(kMeasures), std::end(kMeasures),
                     [&](Measure measure) { return (this->*measure)(need); })) {
      reporter_.fail(size, need.in_pieces() ? kInPieces : "", need.in_pieces());
    }
  }
  const Nanoseconds spent = SteadyClock::now() - start;
  context_.room_time += spent;
  stats.bookkeeping_ns += spent.count() - (apart() - apart_before);
}

// What is charged outside the pool must leave room in the budget.
void Room::make_budget_room(Need& need) {
  const Bytes size = need.size;
  const auto too_large = [&] { return context_.charges.external + size > context_.budget; };
  need.swept = too_large();
  if (need.swept) {
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
}

bool Room::lacks(Need& need) {
  need.missing = context_.shortfall(need.size);
  need.in_vain.reset();
  return !need.in_pieces() || pool_.largest_free() < need.size;
}

bool Room::grow_once(Need& need) {
  if (!need.in_pieces() || need.misfit) {
    return false;
  }
  need.misfit = true;
  count_misfit();
  take_more(need.size);
  return pool_.largest_free() >= need.size;
}

bool Room::join_pieces(Need& need) {
  if (!need.in_pieces()) {
    return false;
  }
  need.lost = make_one_piece(need.size, need.lost);
  return pool_.largest_free() >= need.size;
}

bool Room::drop_while_roomy(Need& need) {
  return !need.in_pieces() && enough_.roomy() && non_recomputables_.drop_one(need.missing);
}

bool Room::use_addresses_in_vain(Need& need) {
  return is_in_vain(need) && use_all_addresses(need.size);
}

bool Room::evict_candidates(Need& need) {
  return !is_in_vain(need) &&
         evictor_.evict_one({.size = need.size, .shortfall = std::max(need.missing, Bytes(0))});
}

bool Room::evict_held(Need& need) { return !is_in_vain(need) && evict_soft_pinned(); }

bool Room::sweep(Need& need) {
  const bool first = !std::exchange(need.swept, true);
  if (first) {
    context_.device.sweep_external();
  }
  return first;
}

bool Room::end_copies(Need& /*need*/) { return context_.copies->wait_for_all(); }

bool Room::drop_source(Need& need) {
  return !is_in_vain(need) && non_recomputables_.drop_one(need.missing);
}

bool Room::import(Need& need) { return !is_in_vain(need) && importer_.bring_in(); }

bool Room::use_addresses(Need& need) { return need.in_pieces() && use_all_addresses(need.size); }

// An op that is run again with defragmented memory need not wait.
bool Room::await_more(Need& need) {
  return !(need.in_pieces() && enough_.again()) &&
         wait_for_more(need.in_pieces() ? need.size : need.missing);
}

void Room::count_misfit() {
  constexpr std::int64_t kMillion = 1'000'000;
  ++context_.stats.misfits;
  context_.stats.misfit_ppm +=
      kMillion - kMillion * pool_.largest_free().count() / pool_.free_bytes().count();
}

bool Room::is_in_vain(Need& need) const {
  if (!need.in_vain) {
    need.in_vain = need.in_pieces() && !can_be_one_piece(need.size);
  }
  return *need.in_vain;
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
  const auto clearable = [this](ValueId owner) {
    return owner.valid() && context_.lineage[owner].clearable();
  };
  return Compactor(pool_).largest_window(clearable, size) >= size;
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

}  // namespace recoup::detail
