// SpillForecast: which values of a step will be spilled, if it repeats.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/program/engine.h"

namespace recoup::detail {

// Note [Writes known in advance]
// A value that was spilled in the last run of a step will be spilled in the next one, too. The
// tier is idle for most of a step, but not when memory is short. So such a value is written as
// soon as it is made, which may be long before it is spilled; values that will be spilled first are
// written first. A value is identified by the op of the step that made it and the number of the
// result. It may be spilled in the step after the one that made it, such as an optimizer's state.
// If each use of a value invalidates its copy (Note [Copies of what is used] in values.h), it is
// written after its last use, so each op counts as the maker of all its operands.
class SpillForecast {
 public:
  // The engine must outlive it.
  explicit SpillForecast(const Engine& engine) : engine_(engine) {}

  // Begins to record a run of a step, and returns its number.
  std::uint64_t begin_run();
  // An op of the step has ended.
  // `expected`: the run of the step that the current run repeats so far; 0: none.
  void add_op(std::span<const Operand> operands, std::span<const StorageId> fresh,
              std::uint64_t expected);
  void on_spill(ValueId value);
  // The next value to write. It can be written, and has no copy in the tier. Each value is returned
  // once; invalid: there is none.
  [[nodiscard]] ValueId next();

 private:
  static constexpr std::uint32_t kNever = 0xffffffff;
  // Number of runs on record. More are not needed: a predictor knows few steps.
  static constexpr std::size_t kMostRuns = 8;

  struct Run {
    std::uint64_t number = 0;
    std::vector<std::uint32_t> first{0};  // index of the first result, by op, with an end marker
    std::vector<std::uint32_t> spilled;   // number of ops until a result was spilled; kNever
  };
  struct Maker {
    std::uint64_t run = 0;
    std::uint32_t result = 0;  // index in Run::spilled
    std::uint64_t op = 0;      // number among all ops
  };
  struct Due {
    std::uint64_t op = 0;  // number, among all ops, of the op that will need the room
    std::uint64_t made = 0;
    ValueId value;
    friend auto operator>(const Due& a, const Due& b) {
      return std::pair(a.op, a.made) > std::pair(b.op, b.made);
    }
  };

  void add_result(StorageId storage, const Run* expected, std::uint32_t slot);
  [[nodiscard]] Run* find(std::uint64_t number);

  const Engine& engine_;
  std::deque<Run> runs_;  // the running one last
  std::uint64_t ops_ = 0;
  ById<ValueId, Maker> makers_;  // an id may belong to a later value
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace recoup::detail
