// ClearedRange: finds which of several blocks must be freed so that one free range remains.
#pragma once

#include <vector>

#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

class ClearedRange {
 public:
  // For a range of `size` bytes, a multiple of the pool's alignment. The pool must outlive this
  // object and must not change.
  ClearedRange(const Pool& pool, Bytes size) : pool_(pool), size_(size) {}

  // Counts the taken block as free. True: it is now part of a free range that is large enough, and
  // no other block may be added.
  [[nodiscard]] bool add(BlockId block);
  // The owners of the blocks that the range needs, in the order in which they were added. From the
  // last one to the first, a block is left out if the range is large enough without it.
  [[nodiscard]] std::vector<ValueId> needed();

 private:
  [[nodiscard]] bool clear(BlockId block) const;
  [[nodiscard]] bool large_enough() const;

  const Pool& pool_;
  Bytes size_;
  std::vector<BlockId> added_;
  // The range around the last block that was added, from `first_` to before `end_`.
  BlockId first_;
  BlockId end_;
};

}  // namespace recoup::detail
