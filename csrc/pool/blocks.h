// Records of a pool's blocks, and the orders of its free index.
#pragma once

#include <array>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

struct Block : boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  BlockId self;
  BlockId next;
  BlockId previous;
  ValueId owner;
  bool free = false;
  bool live = false;
};

struct BySizeThenOffset {
  bool operator()(const Block& a, const Block& b) const {
    return a.size != b.size ? a.size < b.size : a.offset < b.offset;
  }
};

struct BySize {
  bool operator()(const Block& block, std::int64_t size) const { return block.size < size; }
  bool operator()(std::int64_t size, const Block& block) const { return size < block.size; }
};

// Blocks by id. They never move in memory, because the free index links them.
class Blocks {
 public:
  Block& operator[](std::size_t index) { return (*chunks_[index / kChunk])[index % kChunk]; }
  const Block& operator[](std::size_t index) const {
    return (*chunks_[index / kChunk])[index % kChunk];
  }
  Block& add() {
    if (size_ == chunks_.size() * kChunk) {
      chunks_.push_back(std::make_unique<std::array<Block, kChunk>>());
    }
    Block& block = (*this)[size_];
    block.self = BlockId(static_cast<std::uint32_t>(size_++));
    return block;
  }

 private:
  static constexpr std::size_t kChunk = 256;
  std::vector<std::unique_ptr<std::array<Block, kChunk>>> chunks_;
  std::size_t size_ = 0;
};

}  // namespace recoup::detail
