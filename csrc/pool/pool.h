// Pool: which ranges of the addresses [0, capacity) are taken, and by which value. It has no
// memory.
//
//   0                                                                        capacity
//   |small|persistent|....free....|evict.|free|evictable|.......free........|evictable|
//    low zone grows up ->                                    <- high zone grows down
//
// Blocks cover the pool in address order. Free neighbors are merged at once, except across a
// segment boundary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/base/handle.h"
#include "recoup/types.h"

namespace recoup::detail {

enum class Zone : std::uint8_t { kLow, kHigh };

struct PoolOptions {
  Bytes capacity;
  // Blocks do not cross multiples of this size (MindSpore PyNative's fixed blocks). 0, the default:
  // one segment of the whole capacity.
  Bytes segment_size{0};
  Bytes alignment{64};  // alignment of every offset and size, a power of two
};

struct BlockView {
  PoolOffset offset;
  Bytes size;  // rounded up to the alignment
  bool free = false;
  ValueId owner;  // the value that set_owner() assigned; invalid for a new block
};

// Watches the blocks of a pool.
class PoolObserver {
 public:
  virtual ~PoolObserver() = default;
  virtual void on_take(BlockId block, Bytes size) = 0;
  virtual void on_free(BlockId block) = 0;
};

class Pool {
 public:
  explicit Pool(const PoolOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Best fit: takes the smallest free block that holds `size` (> 0) rounded up; of equal ones the
  // lowest for Zone::kLow, the highest for Zone::kHigh. The allocation takes the low end of it for
  // kLow and the high end for kHigh; the rest stays free. nullopt if no free block is large enough.
  std::optional<BlockId> allocate(Bytes size, Zone zone);
  // Allocates at `offset`; nullopt if the range is not free or exceeds the pool.
  std::optional<BlockId> allocate_at(PoolOffset offset, Bytes size);
  // Frees the block and merges it with free neighbors. A later block may reuse the id.
  void free(BlockId block);

  // Null: no observer. It must outlive the pool or be reset to null.
  void set_observer(PoolObserver* observer);

  // Moves the high end to `end`, or to that of the last block that is taken beyond.
  void set_end(PoolOffset end);

  // The taken block that starts exactly at `offset`, if there is one. O(1).
  [[nodiscard]] std::optional<BlockId> find(PoolOffset offset) const;
  [[nodiscard]] BlockView view(BlockId block) const;
  [[nodiscard]] PoolOffset offset(BlockId block) const;
  [[nodiscard]] Bytes size(BlockId block) const;
  [[nodiscard]] ValueId owner(BlockId block) const;
  void set_owner(BlockId block, ValueId owner);

  // Neighbors in address order, including free blocks; invalid at the ends.
  [[nodiscard]] BlockId first() const;
  [[nodiscard]] BlockId next(BlockId block) const;
  [[nodiscard]] BlockId previous(BlockId block) const;
  // In address order.
  [[nodiscard]] std::vector<BlockId> free_blocks() const;
  [[nodiscard]] std::vector<BlockView> taken() const;
  // Whether no block may extend across `offset`.
  [[nodiscard]] bool starts_segment(PoolOffset offset) const;
  // Total size of the free neighbors that the block would merge with.
  [[nodiscard]] Bytes free_around(BlockId block) const;

  [[nodiscard]] Bytes capacity() const;
  [[nodiscard]] RECOUP_API Bytes used() const;
  [[nodiscard]] Bytes free_bytes() const { return capacity() - used(); }
  [[nodiscard]] std::size_t taken_blocks() const;
  [[nodiscard]] Bytes largest_free() const;
  [[nodiscard]] Bytes round_up(Bytes size) const;

  // Moves a taken block, which keeps its id and owner. The new range must be free, except that it
  // may overlap the old one.
  void move(BlockId block, PoolOffset to);

  // Verifies all counts; throws InternalError on the first difference.
  void check() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An allocated block that nothing else knows yet.
using NewBlock = Handle<Pool, BlockId, &Pool::free>;

}  // namespace recoup::detail
