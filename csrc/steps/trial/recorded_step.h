// RecordedStep: a step of a run, as a program that can be simulated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/simulator/simulator.h"
#include "csrc/steps/place/block_kind.h"
#include "csrc/steps/track/step_log.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

// The trace starts with the state before the step: blocks of the pool, spilled content, and other
// charged bytes. A simulation of the step evicts none of these, except to a spill tier.
struct RecordedStep {
  Trace trace;
  StartingPool pool;  // state of the pool at the start of the step's next run
  Bytes unseen{0};    // bytes that are charged but belong to no storage of the program
  Bytes window{0};    // bytes charged for overflow memory at the start of its next run
  Options options;    // options of the engine, with its price of moves
  Placer placer{Placement::kTwoEnded, Bytes(0)};  // state of the placer
  Bytes enough{0};                                // see Context
  static constexpr std::uint32_t kNone = 0xffffffff;
  // Of the blocks from before the step, in order, with those of spilled content last. A block is
  // fixed if it must not move.
  struct Before {
    BlockKind kind;
    bool fixed = false;
    std::uint32_t storage = kNone;  // number in the trace; kNone: there is none
  };
  std::vector<Made> names;  // of storages from before the step, in the order of the trace
  double waited_part = 1;   // see UseForecast
  std::vector<Before> blocks;
  PoolOffset end;          // end of the pool
  bool has_places = true;  // whether addresses can be planned
  bool repeats = false;    // whether it follows an equal step

  // Replaces the measured costs of the ops that did not fail.
  void set_costs(std::span<const Nanoseconds> costs);
};

// Note [The pool of the next run]
// What a list saves depends on the addresses of free memory when the step begins. A step changes
// the state of the pool: its results that stay alive take the place of those of the previous step.
// If a step follows an equal step, its next run begins in the state that it leaves. So each block
// from before the step is placed where its counterpart lies at the end of the step. For a storage
// that the previous step made, the counterpart is the storage that the same op made now. Otherwise
// it is the block itself. Blocks without counterpart are obstacles. If the step follows a different
// one, the recorded state is used for the next run as well.
//
// Records a step while it runs. Create it where the step begins, outside of any op. The engine and
// the log must outlive it.
class StepRecorder {
 public:
  StepRecorder(const Engine& engine, const StepLog& log);
  // Must receive all calls of the engine's observer.
  [[nodiscard]] Observer& observer() { return recorder_; }
  // Call it where the step ends. `repeats`: the step was equal to the previous one.
  [[nodiscard]] RecordedStep take(bool repeats);

 private:
  void add_block(BlockId id, const BlockView& block);
  void add_spilled(BlockId id, StorageId storage);
  void add_storage(StorageId id, const HeldStorage& storage);
  [[nodiscard]] StartingPool::Place place_of(const BlockView& block, StorageId storage) const;
  [[nodiscard]] bool is_clean(StorageId storage) const;
  [[nodiscard]] bool is_spilled(const HeldStorage& storage) const;
  [[nodiscard]] bool is_fixed(const BlockView& block, StorageId storage) const;
  [[nodiscard]] StartingPool pool_at_end() const;
  [[nodiscard]] Bytes window() const;

  const Engine& engine_;
  const StepLog& log_;
  RecordedStep step_;
  TraceBuilder builder_;
  TraceRecorder recorder_{builder_};
};

}  // namespace recoup::detail
