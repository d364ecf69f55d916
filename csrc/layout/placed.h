// PlacedRows: placed items by address, to find the next free place.
#pragma once

#include <algorithm>
#include <vector>

#include "csrc/layout/items.h"

namespace recoup::detail {

// A list of short chunks: a scan reads contiguous memory, and an insertion shifts one chunk only.
class PlacedRows {
 public:
  struct Row {
    Units begin = 0;
    Units end = 0;
    std::int32_t lower = 0;
    std::int32_t upper = 0;
  };

  // Returns the lowest offset >= `from` at which `size` units overlap no row for which
  // `meets(lower, upper)` is true.
  template <class Meets>
  [[nodiscard]] Units lowest_place(Units size, Units from, Meets meets) const {
    Units at = from;
    for (const std::vector<Row>& chunk : chunks_) {
      for (const Row& row : chunk) {
        if (!meets(row.lower, row.upper)) {
          continue;
        }
        if (row.begin >= at + size) {
          return at;
        }
        at = std::max(at, row.end);
      }
    }
    return at;
  }
  [[nodiscard]] Units lowest_place(const LayoutItem& item) const {
    return lowest_place(item.size, 0, [&item](std::int32_t lower, std::int32_t upper) {
      return lower < item.upper && item.lower < upper;
    });
  }

  void insert(const LayoutItem& item, Units offset) {
    const Row row{offset, offset + item.size, item.lower, item.upper};
    const auto before = [](const Row& a, const Row& b) { return a.begin < b.begin; };
    auto chunk = std::partition_point(chunks_.begin(), chunks_.end(), [&](const auto& rows) {
      return rows.back().begin <= row.begin;
    });
    if (chunk == chunks_.end()) {
      if (chunks_.empty() || chunks_.back().size() == std::size_t{kChunk}) {
        chunks_.emplace_back().reserve(kChunk);
      }
      chunks_.back().push_back(row);
      return;
    }
    if (chunk->size() == std::size_t{kChunk}) {
      std::vector<Row> second(chunk->begin() + kChunk / 2, chunk->end());
      second.reserve(kChunk);
      chunk->resize(kChunk / 2);
      const bool in_second = chunk->back().begin <= row.begin;
      chunk = chunks_.insert(chunk + 1, std::move(second)) - (in_second ? 0 : 1);
    }
    chunk->insert(std::upper_bound(chunk->begin(), chunk->end(), row, before), row);
  }

 private:
  static constexpr int kChunk = 512;
  std::vector<std::vector<Row>> chunks_;  // none is empty
};

}  // namespace recoup::detail
