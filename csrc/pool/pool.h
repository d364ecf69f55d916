// The pool's address algebra: which ranges of [0, capacity) are taken and by whom. No memory here.
//
//   0                                                                        capacity
//   |small|persistent|....free....|evict.|free|evictable|.......free........|evictable|
//    low zone grows up ->                                    <- high zone grows down
//
// Blocks tile the pool in address order; two free neighbours never touch (they coalesce at once),
// except across a segment boundary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

enum class Zone : std::uint8_t { kLow, kHigh };

struct PoolOptions {
  Bytes capacity;
  // Blocks do not cross multiples of this (MindSpore PyNative's fixed blocks). 0 = one segment of
  // the whole capacity, the default: no gaps between segments.
  Bytes segment_size{0};
  Bytes alignment{64};  // every offset and size is a multiple of it; a power of two
};

struct BlockView {
  PoolOffset offset;
  Bytes size;  // rounded up to the alignment
  bool free = false;
  ValueId owner;  // whose bytes are in it, as the caller said; invalid for a new block
};

class Pool {
 public:
  explicit Pool(const PoolOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Best fit: the smallest free block that holds `size` rounded up (which must be > 0); among
  // equals the lowest for Zone::kLow, the highest for Zone::kHigh. The request takes the low end of
  // it for kLow and the high end for kHigh; the rest stays free. nullopt when no free block is
  // large enough.
  std::optional<BlockId> allocate(Bytes size, Zone zone);
  // The same at `offset`; nullopt when something is there, or the pool ends.
  std::optional<BlockId> allocate_at(PoolOffset offset, Bytes size);
  // Frees and coalesces with free neighbours. The id may be used again by a later block.
  void free(BlockId block);

  // Adds free room at the high end.
  void grow(Bytes capacity);
  // Takes room away from it, which must be free.
  void shrink(Bytes capacity);

  // The block that starts exactly at `offset`, if a taken one does. O(1).
  [[nodiscard]] std::optional<BlockId> find(PoolOffset offset) const;
  [[nodiscard]] BlockView view(BlockId block) const;
  [[nodiscard]] PoolOffset offset(BlockId block) const;
  [[nodiscard]] Bytes size(BlockId block) const;
  [[nodiscard]] ValueId owner(BlockId block) const;
  void set_owner(BlockId block, ValueId owner);

  // Neighbours in address order, free blocks included; invalid at the ends.
  [[nodiscard]] BlockId first() const;
  [[nodiscard]] BlockId next(BlockId block) const;
  [[nodiscard]] BlockId previous(BlockId block) const;
  // By address.
  [[nodiscard]] std::vector<BlockId> free_blocks() const;
  [[nodiscard]] std::vector<BlockView> taken() const;
  // Whether no block may go across `offset`.
  [[nodiscard]] bool starts_segment(PoolOffset offset) const;
  // Sum of the free neighbours that it would merge with.
  [[nodiscard]] Bytes free_around(BlockId block) const;

  [[nodiscard]] Bytes capacity() const;
  [[nodiscard]] Bytes used() const;
  [[nodiscard]] Bytes free_bytes() const { return capacity() - used(); }
  [[nodiscard]] std::size_t taken_blocks() const;
  [[nodiscard]] Bytes largest_free() const;
  [[nodiscard]] Bytes round_up(Bytes size) const;

  // Moves a taken block to where nothing is, apart from its own old range: it keeps its id and
  // owner and now starts at `to`.
  void move(BlockId block, PoolOffset to);

  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace recoup::detail
