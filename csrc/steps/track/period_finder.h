// PeriodFinder: finds sequences of ops that repeat, in programs that do not mark their steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/program/engine.h"

namespace recoup::detail {

// Note [Periods]
// Inference, evaluation and generation repeat their ops without an optimizer, whose steps would
// mark them. A storage that is used again after n ops suggests that ops repeat after n ops. If the
// next n ops are like those n ops earlier, n is the period, until an op is not.
//
// Two ops are alike if their names are equal, and each operand is the same storage in both, or was
// made equally many ops before, within a period. So sizes may differ, as those of a generation's
// cache do. The layers of a model are not alike, because they use different weights.
class PeriodFinder {
 public:
  enum class Found : std::uint8_t {
    kNothing,
    kPeriod,  // the period, at the end of a run that was like the one before
    kEnd,     // the end of a further run
  };

  // Lengths of the shortest and the longest period, in ops.
  static constexpr std::uint64_t kShortest = 16;
  static constexpr std::uint64_t kLongest = std::uint64_t{1} << 14;

  // The engine must outlive it.
  explicit PeriodFinder(const Engine& engine) : engine_(engine) {}

  // An op of the program has ended. `name`: hash of its name.
  Found add_op(std::uint64_t name, std::span<const Operand> operands,
               std::span<const StorageId> fresh);
  // No later op is compared with one up to now.
  void restart();

 private:
  struct Use {
    std::uint64_t birth = 0;  // of the storage
    std::uint64_t age = 0;    // number of ops since it was made, or was first used
  };
  struct Op {
    std::uint64_t name = 0;
    std::vector<Use> uses;
  };
  struct Known {
    std::uint64_t birth = 0;
    std::uint64_t made = 0;  // number of the op that made the storage, or used it first
    std::uint64_t used = 0;  // number of the last op that used it; 0: none
  };

  [[nodiscard]] Op& op_at(std::uint64_t number) { return ops_[number % ops_.size()]; }
  [[nodiscard]] bool is_alike(const Op& op, const Op& earlier) const;
  std::uint64_t record(std::uint64_t name, std::span<const Operand> operands);
  void make_room();

  const Engine& engine_;
  std::vector<Op> ops_;       // the last ops, by number modulo the size
  std::uint64_t count_ = 0;   // number of the last op, from 1
  std::uint64_t start_ = 0;   // number of the last op that is not compared with
  std::uint64_t period_ = 0;  // in ops, as suggested or found; 0: none
  std::uint64_t alike_ = 0;   // number of ops, since the period was suggested or last ended
  bool is_found_ = false;
  ById<StorageId, Known> known_;
};

}  // namespace recoup::detail
