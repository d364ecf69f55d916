// EvictionList: the evictions of a step in order, and the points at which blocks are moved instead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "csrc/engine/base/victim_plan.h"
#include "csrc/steps/track/step_log.h"

namespace recoup::detail {

class EvictionList {
 public:
  // An eviction that is due when `ops` ops of the step have ended. Entries ascend by `ops`.
  // A value that is evicted, replayed and evicted again during an op has two.
  struct Entry {
    std::uint32_t ops = 0;
    Made victim;          // or moves()
    bool spills = false;  // whether the victim is spilled
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  // Stands for the `nth` time, from 0, that room is made by moves during the same op.
  [[nodiscard]] static Made moves(std::uint32_t nth) { return {.op = kMoves, .slot = nth}; }

  EvictionList() = default;
  explicit EvictionList(std::vector<Entry> entries);

  [[nodiscard]] std::span<const Entry> entries() const { return entries_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Number of entries that stand for moves.
  [[nodiscard]] std::int64_t moves() const;
  [[nodiscard]] std::span<const Entry> at(std::uint32_t ops) const;
  // The first value that the list names now and that is a candidate.
  [[nodiscard]] PlannedVictim next(const StepLog& step) const;
  // The entry's victim, if it is a candidate.
  [[nodiscard]] static PlannedVictim victim_of(const Entry& entry, const StepLog& step);
  // Whether the list names moves before that value, if room was made by moves `moves` times during
  // the running op.
  [[nodiscard]] bool moves_next(const StepLog& step, std::uint32_t moves) const;
  friend bool operator==(const EvictionList&, const EvictionList&) = default;

 private:
  static constexpr std::uint32_t kMoves = TraceEviction::kMoves;

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> first_;  // index of the first entry, by ops
};

}  // namespace recoup::detail
