// BlockLog: the blocks that one run of a step takes and frees, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/pool/pool.h"

namespace recoup::detail {

// The pool's blocks at the start must be taken while it observes, before the first op of the step.
class BlockLog final : public PoolObserver {
 public:
  static constexpr std::int32_t kEnd = -1;
  // A time in which a block is taken. Sections: see LayoutItem.
  struct Life {
    Bytes size;                   // rounded up to the alignment
    std::uint32_t ops = 0;        // number of ops of the step that had ended when it began
    std::uint32_t evictions = 0;  // number of evictions in the step before it
    std::int32_t lower = 0;       // first section in which the block is taken
    std::int32_t upper = kEnd;    // first section in which it is free; kEnd: it survives the step
    BlockId block;
    [[nodiscard]] bool survives() const { return upper == kEnd; }
  };

  // `ops`: number of ops of the step that have ended.
  void set_ops(std::uint32_t ops) { ops_ = ops; }
  void set_evictions(std::size_t evictions) { evictions_ = static_cast<std::uint32_t>(evictions); }
  void on_take(BlockId block, Bytes size) override {
    section_ += freed_ ? 1 : 0;
    freed_ = false;
    latest_[block] = static_cast<std::uint32_t>(lives_.size());
    lives_.push_back(
        {.size = size, .ops = ops_, .evictions = evictions_, .lower = section_, .block = block});
  }
  void on_free(BlockId block) override {
    freed_ = true;
    lives_[latest_[block]].upper = section_ + 1;
  }
  // The block's last life.
  [[nodiscard]] std::uint32_t life_in(BlockId block) const { return latest_.get(block); }

  // In the order in which they began.
  [[nodiscard]] const std::vector<Life>& lives() const { return lives_; }
  [[nodiscard]] std::int32_t sections() const { return section_ + 1; }

 private:
  std::vector<Life> lives_;
  std::uint32_t ops_ = 0;
  std::uint32_t evictions_ = 0;
  std::int32_t section_ = 0;
  bool freed_ = false;
  ById<BlockId, std::uint32_t> latest_;  // index of the block's last life
};

}  // namespace recoup::detail
