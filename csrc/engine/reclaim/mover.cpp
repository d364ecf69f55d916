#include "csrc/engine/reclaim/mover.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/engine/base/timer.h"

namespace recoup::detail {
namespace {

// Blocks at a planned place are moved if they have at most one part in this of the budget.
constexpr std::int64_t kClearedShare = 16;

}  // namespace

Mover::Mover(Context& context, Values& values, Pages& pages)
    : context_(context),
      pool_(context.pool),
      values_(values),
      pages_(pages),
      compactor_(context.pool) {}

std::optional<Compaction> Mover::plan(Bytes size, Bytes limit) {
  return compactor_.plan(
      size, [this](ValueId owner) { return movable(owner); }, context_.move_price.move_in_bytes(),
      limit);
}

bool Mover::bring_together(Bytes size) {
  while (pool_.largest_free() < size) {
    const auto moves = plan(size, Compactor::kNoLimit);
    if (!moves) {
      return false;
    }
    do_moves(*moves);
  }
  return true;
}

void Mover::slide() {
  while (!do_moves(compactor_.plan_slide([this](ValueId owner) { return movable(owner); }))) {
  }
}

// The search for a plan costs time, too.
std::optional<Offer> Mover::offer(const RoomRequest& request, Nanoseconds lost,
                                  std::optional<Nanoseconds> limit) {
  const MovePrice& price = context_.move_price;
  const Bytes most =
      limit ? price.in_bytes(*limit - price.scan(pool_.taken_blocks())) : Compactor::kNoLimit;
  if (most < price.move_in_bytes()) {
    return std::nullopt;
  }
  auto moves = plan(request.size, most);
  if (!moves) {
    return std::nullopt;
  }
  const Nanoseconds of_moves = price.of(moves->moves.size(), moves->moved);
  return Offer{.price = of_moves, .lost = lost, .plan = std::move(*moves)};
}

void Mover::take(const Offer& offer) { do_moves(std::get<Compaction>(offer.plan)); }

// False: a storage refused to move, and the rest of the plan is void.
bool Mover::do_moves(const Compaction& plan) {
  const Timer timer(context_.stats.move_ns);
  return move_all(plan.moves);
}

bool Mover::move_all(std::span<const Move> moves) {
  for (const Move& move : moves) {
    const BlockView from = pool_.view(move.block);
    const ValueId id = from.owner;
    const StorageId storage = context_.lineage[id].storage;
    void* const handle = storage.valid() ? values_[storage].handle : nullptr;
    if (storage.valid() && !context_.device.detach(handle, from.offset)) {
      values_.disown(id);
      return false;
    }
    context_.device.copy(move.to, {.external = nullptr, .offset = from.offset}, from.size);
    pool_.move(move.block, move.to);
    poison_old(from.offset, move.to, from.size);
    // Not before the copy: pages of a free range may be given back.
    pages_.touch(move.to, from.size);
    if (storage.valid()) {
      context_.device.attach(handle, move.to);
    }
    if (context_.observer != nullptr) {
      context_.observer->on_move(id, move.to);
    }
    ++context_.stats.moves;
    context_.stats.moved_bytes += from.size.count();
  }
  return true;
}

BlockId Mover::relocate(StorageId id, BlockId to) {
  HeldStorage& storage = values_[id];
  Value& value = context_.lineage[storage.current];
  const PoolOffset from = pool_.offset(value.block);
  const PoolOffset there = pool_.offset(to);
  if (!context_.device.detach(storage.handle, from)) {
    return {};
  }
  context_.device.copy(there, {.external = nullptr, .offset = from}, value.size);
  context_.device.attach(storage.handle, there);
  const BlockId before = std::exchange(value.block, to);
  pool_.set_owner(before, ValueId());
  pool_.set_owner(to, storage.current);
  return before;
}

// Non-recomputable values that are written repeatedly (optimizer state, parameters made in the
// scope) live long. At the low end they do not fragment the room that all other values share.
void Mover::place_low(StorageId id) {
  HeldStorage& storage = values_[id];
  const Value& value = context_.lineage[storage.current];
  if (storage.placed || value.recomputable() || !value.block.valid() || value.fixed > 0 ||
      value.escaped || (context_.victim_plan != nullptr && context_.victim_plan->places())) {
    return;
  }
  storage.placed = true;
  if (context_.shortfall(value.size) > Bytes(0)) {
    return;  // both copies exist for a moment
  }
  const auto found = pool_.allocate(value.size, Zone::kLow);
  if (!found) {
    return;
  }
  NewBlock low(pool_, *found);
  pages_.touch(pool_.offset(*found), value.size);
  context_.count_peak();
  BlockId before;
  if (pool_.offset(*found) < pool_.offset(value.block)) {
    const Timer timer(context_.stats.move_ns);
    before = relocate(id, *found);
  }
  if (!before.valid()) {
    return;
  }
  low.release();
  values_.free_bytes(before);
  ++context_.stats.moves;
  context_.stats.moved_bytes += value.size.count();
}

// Each block goes to its place as soon as that is free. If none is, a block that is in the way goes
// to any other place first. Blocks whose place is taken by one that must not move stay.
bool Mover::arrange(std::span<const Move> moves) {
  const Timer timer(context_.stats.move_ns);
  std::vector<Move> left(moves.begin(), moves.end());
  bool copying = false;  // a copy under way keeps a block in its place
  std::erase_if(left, [&](const Move& move) {
    copying |= context_.copies->holds(move.block);
    return !movable(pool_.owner(move.block)) || move.to + pool_.size(move.block) > pool_.capacity();
  });
  bool refused = false;  // disowning a storage that refused may have freed others of these blocks
  const auto go = [&](const Move& move) {
    refused |= pool_.offset(move.block) != move.to && !move_all({&move, 1});
  };
  while (!left.empty() && !refused) {
    const std::size_t before = left.size();
    std::erase_if(left, [&](const Move& move) {
      const bool is_free = !refused && in_the_way(range_of(move), move.block).empty();
      if (is_free) {
        go(move);
      }
      return is_free;
    });
    if (left.size() == before && !refused) {
      Cleared cleared = Cleared::kNo;
      const auto next = std::find_if(left.begin(), left.end(), [&](const Move& move) {
        cleared = clear(range_of(move), move.block);
        return cleared != Cleared::kNo;
      });
      if (cleared == Cleared::kRefused) {
        return copying;
      }
      if (next == left.end()) {
        return copying || std::ranges::any_of(left, [&](const Move& move) {
                 return std::ranges::any_of(in_the_way(range_of(move), move.block),
                                            [&](BlockId id) { return context_.copies->holds(id); });
               });
      }
      go(*next);
      left.erase(next);
    }
  }
  return copying;
}

// The blocks in the range, except one.
std::vector<BlockId> Mover::in_the_way(const PoolRange& range, BlockId except) const {
  std::vector<BlockId> found;
  for (BlockId id = pool_.first(); id.valid() && pool_.offset(id) < range.end;
       id = pool_.next(id)) {
    const BlockView block = pool_.view(id);
    if (!block.free && id != except && block.offset + block.size > range.begin) {
      found.push_back(id);
    }
  }
  return found;
}

// Whether the blocks in the range may move, and have at most a share of the budget.
bool Mover::can_clear(const PoolRange& range) const {
  Bytes sum{0};
  const std::vector<BlockId> others = in_the_way(range, BlockId());
  return std::ranges::all_of(others, [&](BlockId other) {
    sum += pool_.size(other);
    return movable(pool_.owner(other)) && sum.count() <= context_.budget.count() / kClearedShare;
  });
}

std::optional<BlockId> Mover::clear_and_allocate(const PlannedPlace& place, Bytes size) {
  const Timer timer(context_.stats.move_ns);
  const PoolRange range{.begin = place.at, .end = place.at + size};
  const bool possible = context_.shortfall(size) <= Bytes(0) && range.end <= pool_.capacity() &&
                        can_clear(range) && clear(range, BlockId()) == Cleared::kYes;
  return possible ? context_.allocate_at(place, size) : std::nullopt;
}

// Moves blocks out of the range, except one. kNo: one of them stays. kRefused: a storage refused,
// and other blocks may have been freed.
Mover::Cleared Mover::clear(const PoolRange& range, BlockId except) {
  for (const BlockId other : in_the_way(range, except)) {
    const std::optional<PoolOffset> to =
        movable(pool_.owner(other)) ? free_outside(pool_.size(other), range) : std::nullopt;
    if (!to) {
      return Cleared::kNo;
    }
    const Move away[] = {{.block = other, .to = *to}};
    if (!move_all(away)) {
      return Cleared::kRefused;
    }
  }
  return Cleared::kYes;
}

// The lowest free range of `size` bytes outside this one.
std::optional<PoolOffset> Mover::free_outside(Bytes size, const PoolRange& range) const {
  for (const BlockId id : pool_.free_blocks()) {
    const BlockView hole = pool_.view(id);
    const PoolOffset hole_end = hole.offset + hole.size;
    if (hole.offset + size <= std::min(hole_end, range.begin)) {
      return hole.offset;
    }
    if (const PoolOffset above = std::max(hole.offset, range.end); above + size <= hole_end) {
      return above;
    }
  }
  return std::nullopt;
}

// Moves each block into the tightest free block or, if it fits into none, by the size of an
// adjacent one. Alternates between the low and the high end, so that a block that fits into a
// single free block moves back.
void Mover::move_everything() {
  const Zone zone = moved_low_ ? Zone::kHigh : Zone::kLow;
  moved_low_ = !moved_low_;
  std::vector<BlockId> blocks;
  for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
    if (const BlockView block = pool_.view(id); !block.free && movable(block.owner)) {
      blocks.push_back(id);
    }
  }
  for (BlockId block : blocks) {
    const std::optional<PoolOffset> to = another_place(block, zone);
    const Move move[] = {{.block = block, .to = to.value_or(Bytes(0))}};
    if (to && !move_all(move)) {
      return;  // disowning it may have freed others of these blocks
    }
  }
}

std::optional<PoolOffset> Mover::another_place(BlockId id, Zone zone) {
  const BlockView block = pool_.view(id);
  if (const std::optional<BlockId> hole = pool_.allocate(block.size, zone)) {
    const PoolOffset found = pool_.offset(*hole);
    pool_.free(*hole);
    return found;
  }
  if (const BlockId next = pool_.next(id); next.valid()) {
    const BlockView after = pool_.view(next);
    if (after.free && !pool_.starts_segment(after.offset)) {
      return block.offset + after.size;
    }
  }
  if (const BlockId previous = pool_.previous(id); previous.valid()) {
    const BlockView before = pool_.view(previous);
    if (before.free && !pool_.starts_segment(block.offset)) {
      return before.offset;
    }
  }
  return std::nullopt;
}

// Poisons the place from which a block moved. The ranges may overlap.
void Mover::poison_old(PoolOffset from, PoolOffset to, Bytes size) {
  if (!context_.aids.poison) {
    return;
  }
  const PoolOffset begin = to < from ? std::max(from, to + size) : from;
  const PoolOffset end = to < from ? from + size : std::min(from + size, to);
  context_.device.poison(begin, end - begin);
}

}  // namespace recoup::detail
