#include "csrc/pool/cleared_range.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

// Whether the block is free or counts as free.
bool ClearedRange::clear(BlockId block) const {
  return pool_.view(block).free || std::find(added_.begin(), added_.end(), block) != added_.end();
}

bool ClearedRange::add(BlockId block) {
  added_.push_back(block);
  Bytes length = pool_.size(block);
  first_ = block;
  while (!pool_.starts_segment(pool_.offset(first_))) {
    const BlockId previous = pool_.previous(first_);
    if (!previous.valid() || !clear(previous)) {
      break;
    }
    first_ = previous;
    length += pool_.size(first_);
  }
  end_ = pool_.next(block);
  while (end_.valid() && !pool_.starts_segment(pool_.offset(end_)) && clear(end_)) {
    length += pool_.size(end_);
    end_ = pool_.next(end_);
  }
  return length >= size_;
}

bool ClearedRange::large_enough() const {
  Bytes length{0};
  for (BlockId block = first_; block != end_; block = pool_.next(block)) {
    length = clear(block) ? length + pool_.size(block) : Bytes(0);
    if (length >= size_) {
      return true;
    }
  }
  return false;
}

std::vector<ValueId> ClearedRange::needed() {
  for (auto each = added_.rbegin(); each != added_.rend(); ++each) {
    const BlockId block = std::exchange(*each, BlockId());
    if (!large_enough()) {
      *each = block;
    }
  }
  std::vector<ValueId> owners;
  for (const BlockId block : added_) {
    if (block.valid()) {
      owners.push_back(pool_.owner(block));
    }
  }
  return owners;
}

}  // namespace recoup::detail
