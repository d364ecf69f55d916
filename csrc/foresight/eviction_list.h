// EvictionList: what to evict while a step runs, in which order, and where to move blocks instead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "csrc/foresight/step_log.h"

namespace recoup::detail {

class EvictionList {
 public:
  // While `ops` ops of the step have ended; ascending. What is said twice counts once.
  struct Entry {
    std::uint32_t ops = 0;
    Made victim;  // or moves()
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  // Room is made by moves for the `nth` time while the same op runs, from 0.
  [[nodiscard]] static Made moves(std::uint32_t nth) { return {.op = kMoves, .slot = nth}; }

  EvictionList() = default;
  explicit EvictionList(std::vector<Entry> entries);

  [[nodiscard]] std::span<const Entry> entries() const { return entries_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] std::span<const Entry> at(std::uint32_t ops) const;
  // The first that it names now which is a candidate; invalid: there is none.
  [[nodiscard]] ValueId next(const Engine& engine, const StepLog& step) const;
  // Whether it names moves before that, when blocks were moved that often for the running op.
  [[nodiscard]] bool moves_next(const Engine& engine, const StepLog& step,
                                std::uint32_t moves) const;
  friend bool operator==(const EvictionList&, const EvictionList&) = default;

 private:
  static constexpr std::uint32_t kMoves = TraceEviction::kMoves;

  [[nodiscard]] static ValueId candidate(const Made& victim, const Engine& engine,
                                         const StepLog& step);

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> first_;  // entry by ops
};

}  // namespace recoup::detail
