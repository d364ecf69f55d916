// A step that has been seen, as a program of its own.
#pragma once

#include <memory>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

// What was there before it comes first: blocks of the pool, each where it was, and what is charged
// beside them. Nothing of that is evicted in a simulation of the step.
struct RecordedStep {
  Trace trace;
  std::vector<PoolOffset> places;  // of the first blocks
  Bytes unseen{0};                 // charged for what no storage of the program holds
  Options options;                 // of the engine, with its price of moves
  Placer placer{Placement::kTwoEnded, Bytes(0)};  // what it has learned by then
};

// Writes a step down while it runs. To be made where the step begins, outside of any op.
class StepRecorder {
 public:
  explicit StepRecorder(const Engine& engine);
  // Is to be told all that the engine's observer is.
  [[nodiscard]] Observer& observer() { return recorder_; }
  // Where the step ends.
  [[nodiscard]] RecordedStep take();

 private:
  void add_block(BlockId id, const BlockView& block);
  void add_storage(StorageId id, const HeldStorage& storage);

  const Engine& engine_;
  RecordedStep step_;
  TraceBuilder builder_;
  TraceRecorder recorder_{builder_};
};

}  // namespace recoup::detail
