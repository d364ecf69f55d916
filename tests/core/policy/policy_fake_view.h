// A PolicyView over rows that a test sets, and random rows of several kinds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "recoup/policy.h"

namespace recoup {

// A candidate and the costs of its neighborhoods.
struct Row {
  Candidate candidate;
  Nanoseconds exact{};
  Nanoseconds equivalence{};
  Nanoseconds ancestors{};

  [[nodiscard]] Nanoseconds neighborhood(Neighborhood kind) const {
    switch (kind) {
      case Neighborhood::kExact:
        return exact;
      case Neighborhood::kEquivalence:
        return equivalence;
      case Neighborhood::kAncestors:
        return ancestors;
    }
    return {};
  }
};

class FakeView final : public PolicyView {
 public:
  FakeView(std::vector<Row> rows, Tick now)
      : rows_(std::move(rows)), now_(now), visits_(rows_.size()) {}

  [[nodiscard]] std::size_t candidate_count() const override { return rows_.size(); }
  [[nodiscard]] Candidate candidate(std::size_t index) const override {
    ++visits_.at(index);
    return rows_.at(index).candidate;
  }
  [[nodiscard]] Bytes mean_candidate_size() const override {
    if (rows_.empty() || mean_ != Bytes(0)) {
      return mean_;
    }
    __int128 sum = 0;
    for (const Row& row : rows_) {
      sum += row.candidate.size.count();
    }
    return Bytes(static_cast<std::int64_t>(sum / static_cast<__int128>(rows_.size())));
  }
  [[nodiscard]] Nanoseconds neighborhood_cost(ValueId id, Neighborhood kind) const override {
    ++queries_;
    EXPECT_TRUE(kind != Neighborhood::kEquivalence || has_equivalence_)
        << "queried, but not declared as needed";
    const auto row = find(id);
    EXPECT_NE(row, rows_.end()) << "neighborhood of a value that is not a candidate";
    return row == rows_.end() ? Nanoseconds(0) : row->neighborhood(kind);
  }
  [[nodiscard]] Tick now() const override { return now_; }
  // By default the candidates in the order of their indices, and no other blocks.
  [[nodiscard]] std::span<const PoolBlock> blocks() const override {
    if (layout_.empty()) {
      tiles_.clear();
      for (const Row& row : rows_) {
        tiles_.push_back(
            {.size = row.candidate.size, .candidate = static_cast<std::uint32_t>(tiles_.size())});
      }
      return tiles_;
    }
    return layout_;
  }
  [[nodiscard]] std::span<const std::uint32_t> inputs(std::size_t index) const override {
    return inputs_.empty() ? std::span<const std::uint32_t>() : inputs_.at(index);
  }

  [[nodiscard]] std::span<const ValueId> changes() const override {
    reported_.clear();
    if (first_) {
      for (const Row& row : rows_) {
        reported_.push_back(row.candidate.id);
      }
    }
    first_ = false;
    for (ValueId id : changed_) {
      if (std::find(reported_.begin(), reported_.end(), id) == reported_.end()) {
        reported_.push_back(id);
      }
    }
    changed_.clear();
    return reported_;
  }
  [[nodiscard]] std::optional<std::size_t> index_of(ValueId id) const override {
    const auto row = find(id);
    return row == rows_.end() ? std::nullopt
                              : std::optional(static_cast<std::size_t>(row - rows_.begin()));
  }

  [[nodiscard]] bool contains(ValueId id) const { return find(id) != rows_.end(); }
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<int>& visits() const { return visits_; }  // by index
  [[nodiscard]] std::int64_t queries() const { return queries_; }
  void evict(ValueId id) {
    rows_.erase(find(id));
    changed_.push_back(id);
  }
  void add(const Row& row) {
    rows_.push_back(row);
    visits_.resize(rows_.size());
    changed_.push_back(row.candidate.id);
  }
  // Returns a row to be changed; changes() will report it.
  Row& change(std::size_t index) {
    changed_.push_back(rows_.at(index).candidate.id);
    return rows_.at(index);
  }
  // Returns a row to be changed; changes() will not report it.
  Row& change_secretly(std::size_t index) { return rows_.at(index); }
  void advance(Tick ticks) { now_ += ticks; }
  void set_mean(Bytes mean) { mean_ = mean; }  // overrides the mean of the rows
  void set_blocks(std::vector<PoolBlock> blocks) { layout_ = std::move(blocks); }
  void set_inputs(std::vector<std::vector<std::uint32_t>> inputs) { inputs_ = std::move(inputs); }
  void forbid_equivalence() { has_equivalence_ = false; }

 private:
  [[nodiscard]] std::vector<Row>::const_iterator find(ValueId id) const {
    return std::find_if(rows_.begin(), rows_.end(),
                        [id](const Row& row) { return row.candidate.id == id; });
  }

  std::vector<Row> rows_;
  Tick now_;
  Bytes mean_{0};
  bool has_equivalence_ = true;
  std::vector<PoolBlock> layout_;
  std::vector<std::vector<std::uint32_t>> inputs_;  // by candidate
  mutable std::vector<PoolBlock> tiles_;
  mutable std::vector<int> visits_;
  mutable std::int64_t queries_ = 0;
  mutable std::vector<ValueId> changed_;  // since the last call of changes()
  mutable std::vector<ValueId> reported_;
  mutable bool first_ = true;
};

// The numbers in random rows.
enum class RowKind : std::uint8_t {
  kTies,       // few distinct numbers, including zeros: scores often tie
  kRealistic,  // bytes to gigabytes, microseconds to seconds, hours of staleness
  kExtreme,    // the smallest possible number, 0 or 1, and 2^62
};

inline std::int64_t draw(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}

inline FakeView random_view(Rng& rng, std::size_t count, RowKind kind) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const auto number = [&](std::int64_t low, std::int64_t high) {
    switch (kind) {
      case RowKind::kTies:
        return draw(rng, low, 4);
      case RowKind::kRealistic:
        return draw(rng, low, std::int64_t{1} << draw(rng, 4, high));
      case RowKind::kExtreme:
        return draw(rng, 0, 1) == 0 ? kHuge : low;
    }
    return low;
  };
  const auto time = [&] { return Nanoseconds(number(0, 32)); };
  constexpr Tick kNow = kHuge;
  // Distinct ids that correlate with neither age, size nor index.
  std::vector<std::uint32_t> ids(3 * count);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::uint32_t>(i);
  }
  std::shuffle(ids.begin(), ids.end(), rng);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < count; ++i) {
    rows.push_back({.candidate = {.id = ValueId(ids[i]),
                                  .size = Bytes(number(1, 32)),
                                  .offset = Bytes(static_cast<std::int64_t>(i)),
                                  .own_cost = time(),
                                  .last_access = kNow - number(0, 45),
                                  .equivalence_at_least = {},
                                  .until_use = draw(rng, 0, 9) == 0 ? Candidate::kNever : time(),
                                  .copy_cost = draw(rng, 0, 3) == 0 ? Candidate::kNever : time(),
                                  .recomputes = static_cast<std::uint32_t>(draw(rng, 0, 3) * 1000)},
                    .exact = time(),
                    .equivalence = time(),
                    .ancestors = time()});
    Row& row = rows.back();
    row.candidate.free_around = Bytes(draw(rng, 0, 1) * row.candidate.size.count());
    row.candidate.equivalence_at_least = Nanoseconds(draw(rng, 0, row.equivalence.count()));
  }
  return {std::move(rows), kNow};
}

inline std::vector<RowKind> row_kinds() {
  return {RowKind::kTies, RowKind::kRealistic, RowKind::kExtreme};
}

constexpr RoomRequest kRequest = {.size = Bytes(1024), .shortfall = Bytes(512)};

}  // namespace recoup
