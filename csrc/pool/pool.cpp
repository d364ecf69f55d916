#include "csrc/pool/pool.h"

#include <algorithm>
#include <bit>
#include <boost/intrusive/set.hpp>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/flat_map.h"
#include "csrc/pool/blocks.h"

namespace recoup::detail {

namespace intrusive = boost::intrusive;

struct Pool::Impl {
  PoolOptions options;
  std::int64_t capacity = 0;
  std::int64_t used = 0;
  Blocks blocks;
  std::vector<BlockId> spare;
  intrusive::set<Block, intrusive::compare<BySizeThenOffset>> free_index;
  FlatMap<BlockId> taken;  // offset -> block
  BlockId first;
  BlockId last;
  PoolObserver* observer = nullptr;

  Block& at(BlockId id) { return blocks[id.index()]; }
  const Block& at(BlockId id) const { return blocks[id.index()]; }

  Block& add();
  void drop(Block& block);
  void link_after(Block& block, BlockId previous);
  void unlink(Block& block);
  [[nodiscard]] bool crosses_segment(std::int64_t offset) const;
  void reindex_grown(Block& block);
  void reindex_shrunk(Block& block);
  void add_free(std::int64_t from, std::int64_t to, BlockId previous);
  void append_free(std::int64_t from, std::int64_t to);
  BlockId take(Block& block);
  Block& insert_free(Block& block);
  [[nodiscard]] Block& free_block_with(Block& near, std::int64_t offset);
};

Block& Pool::Impl::add() {
  Block* block = nullptr;
  if (spare.empty()) {
    block = &blocks.add();
  } else {
    block = &at(spare.back());
    spare.pop_back();
  }
  block->live = true;
  block->owner = ValueId();
  return *block;
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

// A block in the free index has grown or shrunk. Most often it is the largest free block, which
// provides room or takes it back, and its position in the index does not change.
void Pool::Impl::reindex_grown(Block& block) {
  const auto place = free_index.iterator_to(block);
  const auto next = std::next(place);
  if (next != free_index.end() && BySizeThenOffset()(*next, block)) {
    free_index.erase(place);
    free_index.insert(block);
  }
}

void Pool::Impl::reindex_shrunk(Block& block) {
  const auto place = free_index.iterator_to(block);
  if (place != free_index.begin() && BySizeThenOffset()(block, *std::prev(place))) {
    free_index.erase(place);
    free_index.insert(block);
  }
}

// Inserts a block into the free index, merged with its free neighbors. Returns the resulting block.
Block& Pool::Impl::insert_free(Block& block) {
  block.free = true;
  block.owner = ValueId();
  Block* const next = block.next.valid() ? &at(block.next) : nullptr;
  Block* const previous = block.previous.valid() ? &at(block.previous) : nullptr;
  const bool joins_next = next != nullptr && next->free && !crosses_segment(next->offset);
  if (previous != nullptr && previous->free && !crosses_segment(block.offset)) {
    if (joins_next) {
      free_index.erase(free_index.iterator_to(*next));
      block.size += next->size;
      drop(*next);
    }
    previous->size += block.size;
    drop(block);
    reindex_grown(*previous);
    return *previous;
  }
  if (joins_next) {
    next->offset = block.offset;
    next->size += block.size;
    drop(block);
    reindex_grown(*next);
    return *next;
  }
  free_index.insert(block);
  return block;
}

// The free block that contains `offset`, searched outwards from a block that is probably close.
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

// Makes [from, to), which belongs to no block, a free block after `previous`.
void Pool::Impl::add_free(std::int64_t from, std::int64_t to, BlockId previous) {
  Block& block = add();
  block.offset = from;
  block.size = to - from;
  link_after(block, previous);
  insert_free(block);
}

// Marks a block that is not in the free index as taken.
BlockId Pool::Impl::take(Block& block) {
  block.free = false;
  block.owner = ValueId();
  taken.insert(block.offset, block.self);
  used += block.size;
  if (observer != nullptr) {
    observer->on_take(block.self, Bytes(block.size));
  }
  return block.self;
}

// Covers [from, to) with free blocks, one per segment.
void Pool::Impl::append_free(std::int64_t from, std::int64_t to) {
  const std::int64_t segment = options.segment_size.count();
  while (from < to) {
    const std::int64_t end = segment > 0 ? std::min(to, (from / segment + 1) * segment) : to;
    add_free(from, end, last);
    from = end;
  }
}

Pool::Pool(const PoolOptions& options) : impl_(std::make_unique<Impl>()) {
  const std::int64_t alignment = options.alignment.count();
  RECOUP_CHECK(alignment > 0 && std::has_single_bit(static_cast<std::uint64_t>(alignment)));
  impl_->options = options;
  impl_->options.segment_size =
      Bytes((options.segment_size.count() + alignment - 1) / alignment * alignment);
  set_end(options.capacity);
}

Pool::~Pool() = default;

void Pool::set_end(PoolOffset end) {
  Impl& impl = *impl_;
  const std::int64_t alignment = impl.options.alignment.count();
  const std::int64_t wanted = end.count() & ~(alignment - 1);
  RECOUP_CHECK(wanted >= 0);
  if (impl.capacity < wanted) {
    const std::int64_t from = std::exchange(impl.capacity, wanted);
    impl.append_free(from, wanted);
  }
  while (impl.capacity > wanted && impl.at(impl.last).free) {
    Block& last = impl.at(impl.last);
    impl.free_index.erase(impl.free_index.iterator_to(last));
    if (last.offset >= wanted) {
      impl.capacity = last.offset;
      impl.drop(last);
    } else {
      last.size = wanted - last.offset;
      impl.capacity = wanted;
      impl.free_index.insert(last);
    }
  }
}

Bytes Pool::round_up(Bytes size) const {
  const std::int64_t alignment = impl_->options.alignment.count();
  return Bytes((size.count() + alignment - 1) & ~(alignment - 1));
}

std::optional<BlockId> Pool::allocate(Bytes wanted, Zone zone) {
  Impl& impl = *impl_;
  const std::int64_t size = round_up(wanted).count();
  RECOUP_CHECK(size > 0);
  auto found = impl.free_index.lower_bound(size, BySize());
  if (found == impl.free_index.end()) {
    return std::nullopt;
  }
  if (zone == Zone::kHigh) {  // the last one of its size
    found = std::prev(impl.free_index.upper_bound(found->size, BySize()));
  }
  Block* block = &*found;
  if (block->size > size) {
    // The remaining free block keeps its record, and thereby its position in the index.
    Block& rest = *block;
    block = &impl.add();
    block->size = size;
    rest.size -= size;
    if (zone == Zone::kLow) {
      block->offset = rest.offset;
      rest.offset += size;
      impl.link_after(*block, rest.previous);
    } else {
      block->offset = rest.offset + rest.size;
      impl.link_after(*block, rest.self);
    }
    impl.reindex_shrunk(rest);
  } else {
    impl.free_index.erase(found);
  }
  return impl.take(*block);
}

std::optional<BlockId> Pool::allocate_at(PoolOffset offset, Bytes wanted) {
  Impl& impl = *impl_;
  const std::int64_t size = round_up(wanted).count();
  const std::int64_t at = offset.count();
  RECOUP_CHECK(size > 0 && at >= 0 && round_up(offset) == offset);
  if (at + size > impl.capacity) {
    return std::nullopt;
  }
  const auto found = std::find_if(
      impl.free_index.lower_bound(size, BySize()), impl.free_index.end(),
      [&](const Block& each) { return each.offset <= at && at + size <= each.offset + each.size; });
  if (found == impl.free_index.end()) {
    return std::nullopt;
  }
  Block& block = *found;
  const std::int64_t end = block.offset + block.size;
  const std::int64_t begin = block.offset;
  impl.free_index.erase(impl.free_index.iterator_to(block));
  block.offset = at;
  block.size = size;
  const BlockId taken = impl.take(block);
  if (begin < at) {
    impl.add_free(begin, at, block.previous);
  }
  if (at + size < end) {
    impl.add_free(at + size, end, taken);
  }
  return taken;
}

void Pool::free(BlockId id) {
  Block& block = impl_->at(id);
  RECOUP_CHECK(block.live && !block.free, "block ", id.index(), " is freed twice");
  if (impl_->observer != nullptr) {
    impl_->observer->on_free(id);
  }
  impl_->taken.erase(block.offset);
  impl_->used -= block.size;
  impl_->insert_free(block);
}

void Pool::set_observer(PoolObserver* observer) { impl_->observer = observer; }

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

PoolOffset Pool::offset(BlockId id) const { return Bytes(impl_->at(id).offset); }
Bytes Pool::size(BlockId id) const { return Bytes(impl_->at(id).size); }
ValueId Pool::owner(BlockId id) const { return impl_->at(id).owner; }
void Pool::set_owner(BlockId id, ValueId owner) { impl_->at(id).owner = owner; }
BlockId Pool::first() const { return impl_->first; }
BlockId Pool::next(BlockId block) const { return impl_->at(block).next; }
BlockId Pool::previous(BlockId block) const { return impl_->at(block).previous; }
bool Pool::starts_segment(PoolOffset offset) const {
  return impl_->crosses_segment(offset.count());
}

Bytes Pool::free_around(BlockId id) const {
  const Block& block = impl_->at(id);
  std::int64_t sum = 0;
  if (block.previous.valid() && !impl_->crosses_segment(block.offset)) {
    const Block& previous = impl_->at(block.previous);
    sum += previous.free ? previous.size : 0;
  }
  if (block.next.valid()) {
    const Block& next = impl_->at(block.next);
    sum += next.free && !impl_->crosses_segment(next.offset) ? next.size : 0;
  }
  return Bytes(sum);
}

Bytes Pool::capacity() const { return Bytes(impl_->capacity); }
Bytes Pool::used() const { return Bytes(impl_->used); }

std::size_t Pool::taken_blocks() const { return impl_->taken.size(); }

Bytes Pool::largest_free() const {
  return impl_->free_index.empty() ? Bytes(0) : Bytes(impl_->free_index.rbegin()->size);
}

void Pool::move(BlockId id, PoolOffset to) {
  Impl& impl = *impl_;
  Block& block = impl.at(id);
  RECOUP_CHECK(block.live && !block.free);
  const std::int64_t size = block.size;
  const ValueId owner = block.owner;
  // Frees the old range, then cuts the new one out of the free block that contains it. The block's
  // record is detached in between, so that the block keeps its id.
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

std::vector<BlockView> Pool::taken() const {
  std::vector<BlockView> blocks;
  for (BlockId block = first(); block.valid(); block = next(block)) {
    if (const BlockView view = this->view(block); !view.free) {
      blocks.push_back(view);
    }
  }
  return blocks;
}

std::vector<BlockId> Pool::free_blocks() const {
  std::vector<const Block*> found;
  found.reserve(impl_->free_index.size());
  for (const Block& block : impl_->free_index) {
    found.push_back(&block);
  }
  std::sort(found.begin(), found.end(),
            [](const Block* a, const Block* b) { return a->offset < b->offset; });
  std::vector<BlockId> ids;
  ids.reserve(found.size());
  for (const Block* block : found) {
    ids.push_back(block->self);
  }
  return ids;
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
                   "two free neighbors at ", offset);
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
