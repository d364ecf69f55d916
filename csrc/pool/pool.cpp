#include "csrc/pool/pool.h"

#include <algorithm>
#include <bit>
#include <boost/intrusive/set.hpp>
#include <deque>

#include "csrc/base/check.h"
#include "csrc/pool/compaction.h"
#include "csrc/pool/offset_map.h"

namespace recoup::detail {
namespace {

namespace intrusive = boost::intrusive;

struct Block : intrusive::set_base_hook<intrusive::optimize_size<true>> {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  BlockId self;
  BlockId next;
  BlockId previous;
  std::uint32_t owner = 0;
  bool free = false;
  bool live = false;
};

struct BySizeThenOffset {
  bool operator()(const Block& a, const Block& b) const {
    return a.size != b.size ? a.size < b.size : a.offset < b.offset;
  }
};

}  // namespace

struct Pool::Impl {
  PoolOptions options;
  std::int64_t capacity = 0;
  std::int64_t used = 0;
  std::deque<Block> blocks;  // never moves them: the free index links them
  std::vector<BlockId> spare;
  intrusive::set<Block, intrusive::compare<BySizeThenOffset>> free_index;
  OffsetMap taken;  // offset -> block
  BlockId first;
  BlockId last;

  Block& at(BlockId id) { return blocks[id.index()]; }
  const Block& at(BlockId id) const { return blocks[id.index()]; }

  Block& add();
  void drop(Block& block);
  void link_after(Block& block, BlockId previous);
  void unlink(Block& block);
  [[nodiscard]] bool crosses_segment(std::int64_t offset) const;
  void absorb_next(Block& block);
  void append_free(std::int64_t from, std::int64_t to);
  Block& insert_free(Block& block);
  [[nodiscard]] Block& free_block_with(Block& near, std::int64_t offset);
};

Block& Pool::Impl::add() {
  if (spare.empty()) {
    const BlockId id(static_cast<std::uint32_t>(blocks.size()));
    blocks.emplace_back().self = id;
    spare.push_back(id);
  }
  Block& block = at(spare.back());
  spare.pop_back();
  block.live = true;
  block.owner = 0;
  return block;
}

void Pool::Impl::drop(Block& block) {
  unlink(block);
  block.live = false;
  spare.push_back(block.self);
}

void Pool::Impl::link_after(Block& block, BlockId previous) {
  block.previous = previous;
  block.next = previous.valid() ? at(previous).next : first;
  (previous.valid() ? at(previous).next : first) = block.self;
  (block.next.valid() ? at(block.next).previous : last) = block.self;
}

void Pool::Impl::unlink(Block& block) {
  (block.previous.valid() ? at(block.previous).next : first) = block.next;
  (block.next.valid() ? at(block.next).previous : last) = block.previous;
}

bool Pool::Impl::crosses_segment(std::int64_t offset) const {
  const std::int64_t segment = options.segment_size.count();
  return segment > 0 && offset % segment == 0;
}

// Merges the free block with its free right neighbour, if there is one in the same segment. Neither
// is in the free index at that moment as far as `block` goes.
void Pool::Impl::absorb_next(Block& block) {
  if (!block.next.valid()) {
    return;
  }
  Block& next = at(block.next);
  if (next.free && !crosses_segment(next.offset)) {
    free_index.erase(free_index.iterator_to(next));
    block.size += next.size;
    drop(next);
  }
}

// Puts a free block that is in no index into it, merged with its neighbours; returns what became of
// it.
Block& Pool::Impl::insert_free(Block& block) {
  block.free = true;
  block.owner = 0;
  absorb_next(block);
  if (block.previous.valid() && at(block.previous).free && !crosses_segment(block.offset)) {
    Block& previous = at(block.previous);
    free_index.erase(free_index.iterator_to(previous));
    previous.size += block.size;
    drop(block);
    free_index.insert(previous);
    return previous;
  }
  free_index.insert(block);
  return block;
}

// The free block that contains `offset`, searched outwards from one that is probably close.
Block& Pool::Impl::free_block_with(Block& near, std::int64_t offset) {
  Block* block = &near;
  while (block->offset > offset) {
    block = &at(block->previous);
  }
  while (block->offset + block->size <= offset) {
    block = &at(block->next);
  }
  return *block;
}

// Covers [from, to) with free blocks, one a segment.
void Pool::Impl::append_free(std::int64_t from, std::int64_t to) {
  const std::int64_t segment = options.segment_size.count();
  while (from < to) {
    const std::int64_t end = segment > 0 ? std::min(to, (from / segment + 1) * segment) : to;
    Block& block = add();
    block.offset = from;
    block.size = end - from;
    link_after(block, last);
    insert_free(block);
    from = end;
  }
}

Pool::Pool(const PoolOptions& options) : impl_(std::make_unique<Impl>()) {
  const std::int64_t alignment = options.alignment.count();
  RECOUP_CHECK(alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(alignment)));
  impl_->options = options;
  impl_->options.segment_size =
      Bytes((options.segment_size.count() + alignment - 1) / alignment * alignment);
  grow(options.capacity);
}

Pool::~Pool() = default;

void Pool::grow(Bytes capacity) {
  const std::int64_t alignment = impl_->options.alignment.count();
  const std::int64_t wanted = capacity.count() / alignment * alignment;
  RECOUP_CHECK(wanted >= impl_->capacity, "a pool does not shrink");
  const std::int64_t from = impl_->capacity;
  impl_->capacity = wanted;
  impl_->append_free(from, wanted);
}

Bytes Pool::round_up(Bytes size) const {
  const std::int64_t alignment = impl_->options.alignment.count();
  return Bytes((size.count() + alignment - 1) & ~(alignment - 1));
}

std::optional<BlockId> Pool::allocate(Bytes wanted, Zone zone) {
  Impl& impl = *impl_;
  const std::int64_t size = round_up(wanted).count();
  RECOUP_CHECK(size > 0);
  Block key;
  key.size = size;
  auto found = impl.free_index.lower_bound(key);
  if (found == impl.free_index.end()) {
    return std::nullopt;
  }
  if (zone == Zone::kHigh) {  // the last of its size
    key.size = found->size + 1;
    found = std::prev(impl.free_index.lower_bound(key));
  }
  Block& block = *found;
  impl.free_index.erase(found);
  if (block.size > size) {
    Block& rest = impl.add();
    rest.free = true;
    rest.size = block.size - size;
    if (zone == Zone::kLow) {
      rest.offset = block.offset + size;
      impl.link_after(rest, block.self);
    } else {
      rest.offset = block.offset;
      block.offset += rest.size;
      impl.link_after(rest, block.previous);
    }
    block.size = size;
    impl.free_index.insert(rest);
  }
  block.free = false;
  block.owner = 0;
  impl.taken.insert(block.offset, block.self);
  impl.used += size;
  return block.self;
}

void Pool::free(BlockId id) {
  Block& block = impl_->at(id);
  RECOUP_CHECK(block.live && !block.free, "block ", id.index(), " is freed twice");
  impl_->taken.erase(block.offset);
  impl_->used -= block.size;
  impl_->insert_free(block);
}

std::optional<BlockId> Pool::find(PoolOffset offset) const {
  return impl_->taken.find(offset.count());
}

BlockView Pool::view(BlockId id) const {
  const Block& block = impl_->at(id);
  return {.offset = Bytes(block.offset),
          .size = Bytes(block.size),
          .free = block.free,
          .owner = block.owner};
}

void Pool::set_owner(BlockId id, std::uint32_t owner) { impl_->at(id).owner = owner; }
BlockId Pool::first() const { return impl_->first; }
BlockId Pool::next(BlockId block) const { return impl_->at(block).next; }
BlockId Pool::previous(BlockId block) const { return impl_->at(block).previous; }
Bytes Pool::capacity() const { return Bytes(impl_->capacity); }
Bytes Pool::used() const { return Bytes(impl_->used); }

Bytes Pool::largest_free() const {
  return impl_->free_index.empty() ? Bytes(0) : Bytes(impl_->free_index.rbegin()->size);
}

void Pool::move(BlockId id, PoolOffset to) {
  Impl& impl = *impl_;
  Block& block = impl.at(id);
  RECOUP_CHECK(block.live && !block.free);
  const std::int64_t size = block.size;
  const std::uint32_t owner = block.owner;
  // Free the old range, then cut the new one out of the free block that holds it. The id is kept by
  // taking the block's record out of circulation in between.
  impl.taken.erase(block.offset);
  Block& hole = impl.add();
  hole.offset = block.offset;
  hole.size = size;
  impl.link_after(hole, block.self);
  impl.unlink(block);
  RECOUP_CHECK(to.count() >= 0 && to.count() + size <= impl.capacity);
  Block& room = impl.free_block_with(impl.insert_free(hole), to.count());
  RECOUP_CHECK(room.free && room.offset + room.size >= to.count() + size, "a move to ", to.count(),
               ", which is not free");
  impl.free_index.erase(impl.free_index.iterator_to(room));
  const std::int64_t before = to.count() - room.offset;
  const std::int64_t after = room.size - before - size;
  block.offset = to.count();
  block.size = size;
  block.owner = owner;
  impl.link_after(block, room.self);
  if (after > 0) {
    Block& rest = impl.add();
    rest.free = true;
    rest.offset = to.count() + size;
    rest.size = after;
    impl.link_after(rest, block.self);
    impl.free_index.insert(rest);
  }
  if (before > 0) {
    room.size = before;
    impl.free_index.insert(room);
  } else {
    impl.drop(room);
  }
  impl.taken.insert(block.offset, id);
}

std::vector<Piece> Pool::pieces(const std::function<bool(std::uint32_t)>& movable) const {
  std::vector<Piece> pieces;
  for (BlockId id = first(); id.valid(); id = next(id)) {
    const Block& block = impl_->at(id);
    pieces.push_back({.block = id,
                      .offset = block.offset,
                      .size = block.size,
                      .free = block.free,
                      .movable = !block.free && movable(block.owner),
                      .starts_segment = impl_->crosses_segment(block.offset)});
  }
  return pieces;
}

std::optional<CompactionPlan> Pool::plan_compaction(
    Bytes size, const std::function<bool(std::uint32_t owner)>& movable) const {
  RECOUP_CHECK(size > Bytes(0));
  return cheapest_compaction(pieces(movable), round_up(size).count());
}

CompactionPlan Pool::plan_slide(const std::function<bool(std::uint32_t owner)>& movable) const {
  return slide_all(pieces(movable));
}

Bytes Pool::largest_window(const std::function<bool(std::uint32_t owner)>& clearable) const {
  std::int64_t most = 0;
  std::int64_t run = 0;
  for (const Piece& piece : pieces(clearable)) {
    if (piece.starts_segment) {
      run = 0;
    }
    run = piece.free || piece.movable ? run + piece.size : 0;
    most = std::max(most, run);
  }
  return Bytes(most);
}

void Pool::check() const {
  const Impl& impl = *impl_;
  std::int64_t offset = 0;
  std::int64_t used = 0;
  std::size_t free_blocks = 0;
  std::size_t taken_blocks = 0;
  BlockId previous;
  for (BlockId id = impl.first; id.valid(); id = impl.at(id).next) {
    const Block& block = impl.at(id);
    RECOUP_CHECK(block.live && block.offset == offset && block.size > 0, "block ", id.index(),
                 " starts at ", block.offset, " and not at ", offset);
    RECOUP_CHECK(block.previous == previous);
    RECOUP_CHECK(block.size % impl.options.alignment.count() == 0);
    if (block.free) {
      ++free_blocks;
      RECOUP_CHECK(!previous.valid() || !impl.at(previous).free || impl.crosses_segment(offset),
                   "two free neighbours at ", offset);
    } else {
      ++taken_blocks;
      used += block.size;
      RECOUP_CHECK(impl.taken.find(block.offset) == id);
    }
    const std::int64_t segment = impl.options.segment_size.count();
    RECOUP_CHECK(segment == 0 ||
                 block.offset / segment == (block.offset + block.size - 1) / segment);
    offset += block.size;
    previous = id;
  }
  RECOUP_CHECK(impl.last == previous);
  RECOUP_CHECK(offset == impl.capacity, "blocks cover ", offset, " of ", impl.capacity);
  RECOUP_CHECK(used == impl.used, "counted ", used, " used bytes, on record ", impl.used);
  RECOUP_CHECK(free_blocks == impl.free_index.size());
  RECOUP_CHECK(taken_blocks == impl.taken.size());
}

}  // namespace recoup::detail
