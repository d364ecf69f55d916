// Making room: what to give up, in which order, and the report when nothing is left to give up.
//
//   1. useless dead values (they are dropped as soon as they are useless, so none is left here)
//   2. candidates, as the policy plans
//   3. softly pinned inputs of waiting replays, the outermost frame's first
//   4. external tensors that only the engine still holds, dead leaves that nothing evicted hangs on
//   5. the report
// When the bytes are there but not in one piece, moving and evicting are priced in the same
// nanoseconds and the cheaper is done.
#include <algorithm>
#include <chrono>

#include "csrc/engine/engine.h"
#include "csrc/engine/replay.h"

namespace recoup::detail {
namespace {
using Clock = std::chrono::steady_clock;

// One allocation of so many is timed. A prime: what a training repeats has another period.
constexpr std::int64_t kTimedOf = 61;
constexpr const char* kInPieces = "the bytes are there, but not in one piece";
}  // namespace

Bytes Engine::shortfall(Bytes size) const {
  return pool_.used() + charges_.external + size - options_.budget;
}

BlockId Engine::allocate(Bytes nbytes) {
  if (replayer_ == nullptr) {
    count_enough(pool_.round_up(nbytes));
  }
  const BlockId block = take_block(nbytes);
  if (Observer* const observer = program_observer()) {
    observer->on_allocate(block, nbytes);
  }
  return block;
}

void Engine::free(BlockId block) {
  if (Observer* const observer = program_observer()) {
    observer->on_free(block);
  }
  values_.return_block(block);
}

// What is allocated from now on is for a replay.
void Engine::place_replay(OpId op) {
  Bytes made{0};
  for (ValueId output : lineage_[op].outputs) {
    made += output.valid() ? lineage_[output].size : Bytes(0);
  }
  placer_.begin_replay(lineage_[op].cost, made);
}

BlockId Engine::take_block(Bytes nbytes) {
  ++stats_.allocations;
  const Bytes size = pool_.round_up(nbytes);
  if (disturbed_) [[unlikely]] {
    disturb_allocation(size);
  }
  std::optional<BlockId> block;
  if (shortfall(size) <= Bytes(0)) {
    block = find_block(size);
  }
  const std::int64_t evictions = stats_.evictions;
  if (!block) {
    make_room(size);
    block = find_block(size);
    RECOUP_CHECK(block.has_value());
    stats_.made_room_bytes += size.count();
  }
  charges_.kernel_held += size;
  ++charges_.kernel_blocks;
  touch_pages(offset(*block), size);
  if (stats_.evictions > evictions) {
    ++stats_.pressed_allocations;
    stats_.pressed_free_bytes += (options_.budget - charged()).count();
  }
  stats_.peak_bytes = std::max(stats_.peak_bytes, charged().count());
  RECOUP_CHECK(charged() <= options_.budget);
  return *block;
}

std::optional<BlockId> Engine::find_block(Bytes size) {
  if (stats_.allocations % kTimedOf != 0) {
    return pool_.allocate(size, placer_.zone(size));
  }
  const auto start = Clock::now();
  const std::optional<BlockId> block = pool_.allocate(size, placer_.zone(size));
  stats_.allocator_ns += kTimedOf * Nanoseconds(Clock::now() - start).count();
  return block;
}

void Engine::make_room(Bytes size) {
  const auto start = Clock::now();
  const std::int64_t apart_before = stats_.search_ns + stats_.move_ns;
  Nanoseconds lost{0};
  bool misfit = false;
  bool swept = charges_.external + size > options_.budget;
  if (swept) {
    device_.sweep_external();
  }
  if (charges_.external + size > options_.budget) {
    throw_out_of_budget(size, "");
  }
  for (;;) {
    const Bytes missing = shortfall(size);
    if (missing <= Bytes(0)) {
      if (pool_.largest_free() >= size) {
        break;
      }
      if (!misfit) {
        misfit = true;
        count_misfit();
      }
      if (roomy() && move_together(size)) {
        break;
      }
      if (roomy() && enough_.again() && replayer_ == nullptr) {
        throw_out_of_budget(size, kInPieces, true);  // it is run again, with memory in order
      }
      if (compact(size, lost)) {
        break;
      }
    } else if (roomy() && drop_dead_leaf(missing)) {
      continue;
    }
    if (evict_one({.size = size, .shortfall = std::max(missing, Bytes(0))}) ||
        evict_soft_pinned()) {
      continue;
    }
    if (!swept) {
      swept = true;
      device_.sweep_external();
      continue;
    }
    if (!drop_dead_leaf(missing)) {
      if (missing <= Bytes(0)) {
        throw_out_of_budget(size, kInPieces, true);
      }
      throw_out_of_budget(size, "");
    }
  }
  const Nanoseconds spent = Clock::now() - start;
  room_time_ += spent;
  stats_.bookkeeping_ns += spent.count() - (stats_.search_ns + stats_.move_ns - apart_before);
}

void Engine::count_misfit() {
  constexpr std::int64_t kMillion = 1'000'000;
  ++stats_.misfits;
  stats_.misfit_ppm +=
      kMillion - kMillion * pool_.largest_free().count() / pool_.free_bytes().count();
}

// A block is there now.
void Engine::touch_pages(PoolOffset from, Bytes size) {
  footprint_.touch(from, size);
  fit_footprint();
}

// Note [Footprint] in footprint.h.
void Engine::fit_footprint() {
  if (!footprint_.counting() || charges_.external == options_.outside) {
    return;
  }
  const Bytes over = footprint_.touched() + charges_.external - options_.budget;
  if (over <= Bytes(0)) {
    in_part_pages_ = Bytes(0);
  } else if (over > in_part_pages_) {
    give_pages_back();
  }
}

// The largest free ranges first: they are few, and what comes next takes the smallest that it fits
// in. A little more than has to go, so that not every allocation comes here.
void Engine::give_pages_back() {
  const auto start = Clock::now();
  constexpr std::int64_t kPart = 64;
  const Bytes spare(options_.budget.count() / kPart);
  std::vector<BlockView> free;
  for (BlockId block : pool_.free_blocks()) {
    free.push_back(pool_.view(block));
  }
  std::stable_sort(free.begin(), free.end(),
                   [](const BlockView& a, const BlockView& b) { return a.size > b.size; });
  for (const BlockView& block : free) {
    if (footprint_.touched() + charges_.external + spare <= options_.budget) {
      break;
    }
    const Footprint::Pages pages = footprint_.pages_in(block.offset, block.offset + block.size);
    if (pages.touched) {
      device_.discard(pages.from, pages.to);
      footprint_.discard(pages);
    }
  }
  in_part_pages_ =
      std::max(Bytes(0), footprint_.touched() + charges_.external + spare - options_.budget);
  const Nanoseconds spent = Clock::now() - start;
  room_time_ += spent;
  stats_.bookkeeping_ns += spent.count();
}

// Room for bytes outside the pool: no address matters.
void Engine::make_room_for_charge(Bytes size) {
  while (shortfall(size) > Bytes(0)) {
    if (!(roomy() && drop_dead_leaf(shortfall(size))) &&
        !evict_one({.size = Bytes(0), .shortfall = shortfall(size)}) && !evict_soft_pinned() &&
        !drop_dead_leaf(shortfall(size))) {
      throw_out_of_budget(size, "a tensor made outside the scope came into it");
    }
  }
}

EvictionPlan Engine::plan_eviction(const RoomRequest& request) {
  if (candidates_.list().empty()) {
    return {};
  }
  const auto start = Clock::now();
  EvictionPlan plan = policy_->plan(candidates_, request);
  stats_.search_ns += Nanoseconds(Clock::now() - start).count();
  return plan;
}

bool Engine::evict_one(const RoomRequest& request) {
  const EvictionPlan plan = plan_eviction(request);
  evict_all(plan.victims);
  return !plan.victims.empty();
}

// What becomes of one victim may make a leaf of the next one, or end its record.
void Engine::evict_all(std::span<const ValueId> victims) {
  for (ValueId victim : victims) {
    if (lineage_.contains(victim) && lineage_[victim].evictable()) {
      evict_value(victim);
    }
  }
}

bool Engine::evict_soft_pinned() {
  const ValueId victim = replayer_ == nullptr ? ValueId() : replayer_->soft_victim();
  if (victim.valid()) {
    evict_value(victim);
  }
  return victim.valid();
}

void Engine::evict_value(ValueId id) {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.evictable());
  if (value.storage.valid() && !device_.detach(handle(value.storage), offset(value.block))) {
    forsake(id);
    return;
  }
  ++stats_.evictions;
  stats_.evicted_bytes += value.size.count();
  if (observer_ != nullptr) {
    observer_->on_evict(id);
  }
  values_.transition(id, Residency::kEvicted);
  values_.drain();
}

// Somebody shares or replaced the bytes behind our back: they are not ours to take, or to move.
void Engine::forsake(ValueId id) {
  lineage_[id].escaped = true;
  values_.set_island(storages_[lineage_[id].storage], true);
  values_.make_leaf(id);
  values_.drain();
}

// A dead leaf is kept for what could be replayed from it. When no evicted value that somebody needs
// hangs on it, what was made from it can become leaves, and it can go. Where those are larger than
// the leaf that is a loss for later, so it is done only when it makes the difference now.
bool Engine::drop_dead_leaf(Bytes missing) {
  struct Droppable {
    ValueId leaf;
    Bytes gain;  // its size - what would be a leaf in its stead
  };
  std::vector<Droppable> droppable;
  Bytes total{0};
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (!value.leaf() || !value.resident() || value.held()) {
      return;
    }
    const Dependents found = dependents(id);
    if (found.needed.empty()) {
      Bytes gain = value.size;
      for (ValueId dependent : found.resident) {
        gain -= lineage_[dependent].size;
      }
      total += value.size;
      droppable.push_back({id, gain});
    }
  });
  const auto best =
      std::max_element(droppable.begin(), droppable.end(),
                       [](const Droppable& a, const Droppable& b) { return a.gain < b.gain; });
  if (best == droppable.end() ||
      (best->gain < Bytes(0) && (missing <= Bytes(0) || total < missing))) {
    return false;
  }
  freeze(best->leaf, dependents(best->leaf));
  values_.settle(best->leaf);
  return true;
}

bool Engine::movable(std::uint32_t owner) const {
  return owner != 0 && lineage_[ValueId(owner - 1)].movable();
}

Nanoseconds Engine::price_of(const EvictionPlan& plan) const {
  Nanoseconds price{0};
  for (ValueId victim : plan.victims) {
    price += lineage_[lineage_[victim].producer].cost + exact_neighborhood_cost(lineage_, victim);
  }
  return price;
}

// What moving may cost where evicting costs `price`. To look for a plan costs time as well.
Bytes Engine::worth_moving(Nanoseconds price) const {
  return move_price_.in_bytes(price - move_price_.look(pool_.taken_blocks()));
}

// `lost`: what was evicted for the same allocation, though there were bytes enough. False when
// there is nothing left to evict and moving does not help.
bool Engine::compact(Bytes size, Nanoseconds& lost) {
  const Bytes a_move = move_price_.each_in_bytes();
  while (pool_.largest_free() < size) {
    const EvictionPlan eviction = plan_eviction({.size = size, .shortfall = Bytes(0)});
    const Nanoseconds price = lost + price_of(eviction);
    const Bytes limit = eviction.victims.empty() ? Pool::kNoLimit : worth_moving(price);
    std::optional<CompactionPlan> moving;
    if (limit >= a_move) {
      moving = pool_.plan_compaction(
          size, [this](std::uint32_t owner) { return movable(owner); }, a_move, limit);
    }
    if (moving) {
      do_moves(*moving);
    } else if (eviction.victims.empty()) {
      return false;
    } else {
      lost = price;
      evict_all(eviction.victims);
    }
  }
  return true;
}

// Note [Enough]
bool Engine::move_together(Bytes size) {
  while (pool_.largest_free() < size) {
    const auto plan = pool_.plan_compaction(
        size, [this](std::uint32_t owner) { return movable(owner); }, move_price_.each_in_bytes());
    if (!plan) {
      return false;
    }
    do_moves(*plan);
  }
  return true;
}

bool Engine::defragment(std::span<const ValueId> pinned, Bytes need) {
  for (ValueId id : pinned) {
    --lineage_[id].fixed;
  }
  // The slide brings them together.
  while (shortfall(need) > Bytes(0) &&
         (evict_one({.size = Bytes(0), .shortfall = shortfall(need)}) || evict_soft_pinned() ||
          drop_dead_leaf(shortfall(need)))) {
  }
  while (!do_moves(pool_.plan_slide([this](std::uint32_t owner) { return movable(owner); }))) {
  }
  for (ValueId id : pinned) {
    ++lineage_[id].fixed;
  }
  return shortfall(need) <= Bytes(0);
}

// False when a storage refused to move; then the plan is void.
bool Engine::do_moves(const CompactionPlan& plan) {
  const auto start = Clock::now();
  const bool done = move_all(plan.moves);
  stats_.move_ns += Nanoseconds(Clock::now() - start).count();
  return done;
}

bool Engine::move_all(std::span<const Move> moves) {
  for (const Move& move : moves) {
    const BlockView from = pool_.view(move.block);
    const ValueId id(from.owner - 1);
    const StorageId storage = lineage_[id].storage;
    if (storage.valid() && !device_.detach(handle(storage), from.offset)) {
      forsake(id);
      return false;
    }
    device_.copy(move.to, {.external = nullptr, .offset = from.offset}, from.size);
    pool_.move(move.block, move.to);
    poison_old(from.offset, move.to, from.size);
    touch_pages(move.to, from.size);  // not before: what is free may be given back
    if (storage.valid()) {
      device_.attach(handle(storage), move.to);
    }
    if (observer_ != nullptr) {
      observer_->on_move(id, move.to);
    }
    ++stats_.moves;
    stats_.moved_bytes += from.size.count();
  }
  return true;
}

}  // namespace recoup::detail
