#include "csrc/pool/compactor.h"

#include <algorithm>
#include <vector>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

Piece piece_of(const Pool& pool, BlockId id, const Compactor::Movable& movable) {
  const BlockView block = pool.view(id);
  return {.block = id,
          .offset = block.offset.count(),
          .size = block.size.count(),
          .free = block.free,
          .movable = !block.free && movable(block.owner),
          .starts_segment = pool.starts_segment(block.offset)};
}

const std::vector<Piece>& layout_of(const Pool& pool, const Compactor::Movable& movable,
                                    std::vector<Piece>& pieces) {
  pieces.clear();
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    pieces.push_back(piece_of(pool, id, movable));
  }
  return pieces;
}

// Collects the pieces within reach of the free blocks in the scratch's layout, in address order:
//
//   pool     #aabbccdd..eeffgghhiijjkk..ll#      reach: two blocks
//   layout       ccdd..eeff      jjkk..ll
//                ^               ^ starts_segment: no block may extend across it
class Surroundings {
 public:
  Surroundings(const Pool& pool, const Compactor::Movable& movable, std::int64_t a_move,
               std::int64_t reach, CompactionScratch& scratch)
      : pool_(pool),
        movable_(movable),
        a_move_(a_move),
        reach_(reach),
        pieces_(scratch.layout),
        before_(scratch.before) {
    pieces_.clear();
  }

  // Must be called in address order.
  void add(BlockId free) {
    const Piece center = piece_of(pool_, free, movable_);
    if (center.offset >= end_) {
      add_before(center);
      append(center);
      add_after(center);
    }
  }

 private:
  void append(const Piece& piece) {
    pieces_.push_back(piece);
    pieces_.back().starts_segment |= piece.offset > end_;
    end_ = piece.offset + piece.size;
  }

  void add_before(const Piece& center) {
    std::int64_t left = reach_;
    before_.clear();
    for (Piece first = center; !first.starts_segment && first.offset > end_;
         first = before_.back()) {
      const Piece piece = piece_of(pool_, pool_.previous(first.block), movable_);
      left -= piece.size + a_move_;
      if (!piece.movable || left < 0) {
        break;
      }
      before_.push_back(piece);
    }
    for (; !before_.empty(); before_.pop_back()) {
      append(before_.back());
    }
  }

  void add_after(const Piece& center) {
    std::int64_t left = reach_;
    for (BlockId id = pool_.next(center.block); id.valid(); id = pool_.next(id)) {
      const Piece piece = piece_of(pool_, id, movable_);
      left = piece.free ? reach_ : left - piece.size - a_move_;
      if (piece.starts_segment || !(piece.free || piece.movable) || left < 0) {
        return;
      }
      append(piece);
    }
  }

  const Pool& pool_;
  const Compactor::Movable& movable_;
  std::int64_t a_move_;
  std::int64_t reach_;
  std::vector<Piece>& pieces_;
  std::vector<Piece>& before_;
  std::int64_t end_ = 0;  // end of the last piece
};

}  // namespace

std::optional<Compaction> Compactor::plan(Bytes wanted, const Movable& movable, Bytes a_move,
                                          Bytes limit) {
  RECOUP_CHECK(wanted > Bytes(0));
  const Bytes size = pool_.round_up(wanted);
  // Most plans move about as many bytes as were requested, so the few blocks within that reach are
  // searched first.
  constexpr std::int64_t kFewMoves = 4;
  const Bytes near = size + Bytes(kFewMoves * a_move.count());
  if (near < limit) {
    if (auto plan = plan_window(size, movable, a_move, near)) {
      return plan;
    }
  }
  if (auto plan = plan_window(size, movable, a_move, limit)) {
    return plan;
  }
  // A slide moves about as many bytes as are allocated. Looking at all of them takes time as well.
  const Bytes all =
      pool_.used() + Bytes(a_move.count() * static_cast<std::int64_t>(pool_.taken_blocks()));
  if (limit < Bytes(all.count() / 2)) {
    return std::nullopt;
  }
  const std::vector<Piece>& layout = layout_of(pool_, movable, scratch_.layout);
  return slide_and_relocate(layout, size.count(), a_move.count(), limit.count(), scratch_);
}

// Note [Asking late]
// Whether a block may move is stored with its owner. To ask every owner costs more than the search,
// because of cache misses, and few blocks are immovable. So the search first assumes that every
// owned block is movable, and then asks only for the blocks of the plan. If one of them is
// immovable, it is excluded and the search is repeated. A cheapest plan under this assumption that
// turns out to be possible is also the cheapest possible plan. This does not hold after a slide of
// everything.
std::optional<Compaction> Compactor::plan_window(Bytes size, const Movable& movable, Bytes a_move,
                                                 Bytes limit) {
  constexpr int kRounds = 3;
  std::vector<ValueId> known;  // owners of blocks that are known to be immovable
  const Movable perhaps = [&](ValueId owner) {
    return owner.valid() && std::find(known.begin(), known.end(), owner) == known.end();
  };
  for (int round = 0; round < kRounds; ++round) {
    auto plan = search_windows(size, perhaps, a_move, limit);
    if (!plan) {
      return plan;
    }
    const std::size_t before = known.size();
    for (const Move& move : plan->moves) {
      if (const ValueId owner = pool_.owner(move.block); !movable(owner)) {
        known.push_back(owner);
      }
    }
    if (known.size() == before) {
      return plan;
    }
  }
  return search_windows(size, movable, a_move, limit);
}

std::optional<Compaction> Compactor::search_windows(Bytes size, const Movable& movable,
                                                    Bytes a_move, Bytes limit) {
  CompactionScratch& work = scratch_;
  if (limit == kNoLimit) {
    layout_of(pool_, movable, work.layout);
  } else {
    Surroundings surroundings(pool_, movable, a_move.count(), limit.count(), work);
    for (const BlockId free : pool_.free_blocks()) {
      surroundings.add(free);
    }
  }
  return cheapest_window(work.layout, size.count(), a_move.count(), limit.count(), work);
}

Compaction Compactor::plan_slide(const Movable& movable) {
  return slide_all(layout_of(pool_, movable, scratch_.layout));
}

Bytes Compactor::largest_window(const Movable& clearable, Bytes enough) const {
  Bytes most{0};
  Bytes run{0};
  for (BlockId id = pool_.first(); id.valid() && most < enough; id = pool_.next(id)) {
    const BlockView block = pool_.view(id);
    if (pool_.starts_segment(block.offset)) {
      run = Bytes(0);
    }
    run = block.free || clearable(block.owner) ? run + block.size : Bytes(0);
    most = std::max(most, run);
  }
  return most;
}

}  // namespace recoup::detail
