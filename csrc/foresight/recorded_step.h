// A step that has been seen, as a program of its own.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/foresight/step_log.h"
#include "csrc/simulate/simulator.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

// What was there before it comes first: blocks of the pool, and what is charged beside them.
// Nothing of that is evicted in a simulation of the step.
struct RecordedStep {
  Trace trace;
  StartingPool pool;  // in which its next run begins
  Bytes unseen{0};    // charged for what no storage of the program holds
  Options options;    // of the engine, with its price of moves
  Placer placer{Placement::kTwoEnded, Bytes(0)};  // what it has learned by then
  Bytes enough{0};                                // see Context
};

// What a block is for, in terms that hold for a step and for the next one. 0: that is not known.
struct BlockKind {
  std::int64_t size = 0;
  std::int64_t op = 0;  // of the step, from 1, that made its storage
  std::int64_t slot = 0;
  std::int64_t storage = 0;  // that no op of the step made, from 1
  friend auto operator<=>(const BlockKind&, const BlockKind&) = default;
};

// Note [The pool of the next run]
// What a list saves depends on where free memory lies when the step begins. A step leaves its pool
// otherwise than it found it: what it made and what stays takes the place of what the step before
// made. Where a step follows its like its next run begins in what it leaves. So each block that was
// there when it began is put to where its counterpart lies when it ends: of a storage that the step
// before made, what the same op made now; else itself. What has no counterpart is in the way.
// After another step, the pool of the recorded run stands for the next one's.
//
// Writes a step down while it runs. To be made where the step begins, outside of any op. The engine
// and the log must outlive it.
class StepRecorder {
 public:
  StepRecorder(const Engine& engine, const StepLog& log);
  // Is to be told all that the engine's observer is.
  [[nodiscard]] Observer& observer() { return recorder_; }
  // Where the step ends. `repeats`: it has done what the step before did.
  [[nodiscard]] RecordedStep take(bool repeats);

 private:
  void add_block(BlockId id, const BlockView& block);
  void add_storage(StorageId id, const HeldStorage& storage);
  [[nodiscard]] StartingPool::Place place_of(const BlockView& block, StorageId storage) const;
  [[nodiscard]] StartingPool pool_at_end() const;

  const Engine& engine_;
  const StepLog& log_;
  RecordedStep step_;
  std::vector<BlockKind> blocks_;  // that were there, in order
  TraceBuilder builder_;
  TraceRecorder recorder_{builder_};
};

}  // namespace recoup::detail
