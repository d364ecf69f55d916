// The pool as compaction sees it, and what is planned on that.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/pool/compaction.h"
#include "csrc/pool/pool.h"

namespace recoup::detail {
namespace {

Piece piece_of(const Pool& pool, BlockId id, const Pool::Movable& movable) {
  const BlockView block = pool.view(id);
  return {.block = id,
          .offset = block.offset.count(),
          .size = block.size.count(),
          .free = block.free,
          .movable = !block.free && movable(block.owner),
          .starts_segment = pool.starts_segment(block.offset)};
}

std::vector<Piece> layout_of(const Pool& pool, const Pool::Movable& movable) {
  std::vector<Piece> pieces;
  for (BlockId id = pool.first(); id.valid(); id = pool.next(id)) {
    pieces.push_back(piece_of(pool, id, movable));
  }
  return pieces;
}

// What is within reach of the free blocks, in address order:
//
//   pool     #aabbccdd..eeffgghhiijjkk..ll#      reach: two blocks
//   layout       ccdd..eeff      jjkk..ll
//                ^               ^ starts_segment: nothing may cross
class Surroundings {
 public:
  Surroundings(const Pool& pool, const Pool::Movable& movable, std::int64_t a_move,
               std::int64_t reach)
      : pool_(pool), movable_(movable), a_move_(a_move), reach_(reach) {
    pieces_.reserve(pool.taken_blocks());
  }

  // To be called in address order.
  void add(BlockId free) {
    const Piece center = piece_of(pool_, free, movable_);
    if (center.offset >= end_) {
      add_before(center);
      append(center);
      add_behind(center);
    }
  }

  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  void append(const Piece& piece) {
    pieces_.push_back(piece);
    pieces_.back().starts_segment |= piece.offset > end_;
    end_ = piece.offset + piece.size;
  }

  void add_before(const Piece& center) {
    std::int64_t left = reach_;
    std::vector<Piece> before;
    for (Piece first = center; !first.starts_segment && first.offset > end_;
         first = before.back()) {
      const Piece piece = piece_of(pool_, pool_.previous(first.block), movable_);
      left -= piece.size + a_move_;
      if (!piece.movable || left < 0) {
        break;
      }
      before.push_back(piece);
    }
    for (; !before.empty(); before.pop_back()) {
      append(before.back());
    }
  }

  void add_behind(const Piece& center) {
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
  const Pool::Movable& movable_;
  std::int64_t a_move_;
  std::int64_t reach_;
  std::vector<Piece> pieces_;
  std::int64_t end_ = 0;  // of the last piece
};

}  // namespace

std::optional<CompactionPlan> Pool::plan_compaction(Bytes wanted, const Movable& movable,
                                                    Bytes a_move, Bytes limit) const {
  RECOUP_CHECK(wanted > Bytes(0));
  const std::int64_t size = round_up(wanted).count();
  const std::int64_t each = a_move.count();
  const std::int64_t most = limit.count();
  if (limit == kNoLimit) {
    const std::vector<Piece> layout = layout_of(*this, movable);
    auto plan = cheapest_window(layout, size, each, most);
    return plan ? std::move(plan) : slide_and_relocate(layout, size, each, most);
  }
  Surroundings surroundings(*this, movable, each, most);
  for (const BlockId free : free_blocks()) {
    surroundings.add(free);
  }
  if (auto plan = cheapest_window(surroundings.pieces(), size, each, most)) {
    return plan;
  }
  // A slide moves about as much as there is. To look at all of it costs time as well.
  const std::int64_t all = used().count() + each * static_cast<std::int64_t>(taken_blocks());
  return most < all / 2 ? std::nullopt
                        : slide_and_relocate(layout_of(*this, movable), size, each, most);
}

CompactionPlan Pool::plan_slide(const Movable& movable) const {
  return slide_all(layout_of(*this, movable));
}

Bytes Pool::largest_window(const Movable& clearable) const {
  std::int64_t most = 0;
  std::int64_t run = 0;
  for (const Piece& piece : layout_of(*this, clearable)) {
    if (piece.starts_segment) {
      run = 0;
    }
    run = piece.free || piece.movable ? run + piece.size : 0;
    most = std::max(most, run);
  }
  return Bytes(most);
}

}  // namespace recoup::detail
