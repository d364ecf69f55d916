// NextUsePredictor: predicts which storages the next ops use, in steps that repeat.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/base/observer.h"
#include "csrc/engine/base/use_forecast.h"
#include "csrc/steps/prefetch/copy_load.h"
#include "csrc/steps/prefetch/spill_forecast.h"
#include "csrc/steps/track/period_finder.h"
#include "csrc/steps/track/step_tracker.h"
#include "recoup/api.h"

namespace recoup::detail {

// Note [Next uses]
// Every step is hashed as it runs, and the storages that each op uses are recorded. While a later
// step is equal to a known one, the record predicts what its next ops use. Storages from before the
// step are identified by themselves, storages that the step makes by the op that made them. A step
// is known from its second run on. Sizes are ignored, so a step with a longer sequence predicts one
// with a shorter sequence. Nothing is predicted if ops overlap on several threads.
//
// A step ends where the program or an optimizer marks it. If ops repeat without marks, their
// periods are steps (Note [Periods]). A period within a marked step, such as one of several passes
// whose gradients are added up, is no step. So periods are looked for before the first mark, and
// when no mark came for twice the least number of ops between two marks.
//
// Must be set as the engine's forecast and observer before the engine runs anything.
class RECOUP_API NextUsePredictor final : public StepTracker, public UseForecast {
 public:
  // The engine must outlive it.
  explicit NextUsePredictor(const Engine& engine);

  // UseForecast.
  [[nodiscard]] std::optional<std::uint32_t> next_use(StorageId storage) const override;
  [[nodiscard]] bool uses_ahead(std::uint32_t n, std::vector<StorageId>& storages) const override;
  [[nodiscard]] ValueId next_to_write() override { return forecast_.next(); }
  [[nodiscard]] double waited_part() const override {
    return following_ == nullptr ? 1 : load_.waited_part();
  }

  // Observer.
  void on_op_ahead(std::string_view name, std::span<const Operand> operands) override;
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_step(std::string_view name) override;
  void on_spill(ValueId value) override { forecast_.on_spill(value); }

 private:
  static constexpr std::size_t kMostKnown = 4;

  // A storage, identified so that the next run of the step can find it.
  struct Use {
    std::optional<Made> made;  // the op of the step that made it
    PinTicket storage;         // otherwise: a storage from before the step
  };
  // A step by op: the rows of op i are those from first[i] to first[i + 1].
  struct Step {
    std::vector<StepHash> hashes;  // hash of all previous ops and of the op's arguments
    std::vector<Use> uses;
    std::vector<std::uint32_t> first{0};
    std::vector<std::uint32_t> next;           // by row: the op that uses the storage next; kNever
    std::vector<std::uint32_t> first_made{0};  // by op: first row of the storages that it made
    // By these rows: the op that first uses the storage; kNever.
    std::vector<std::uint32_t> first_use;
    StepHash hash = 0;
    std::uint64_t run = 0;  // number of its last run in forecast_
  };
  static constexpr std::uint32_t kNever = 0xffffffff;
  struct NextUse {
    std::uint64_t birth = 0;
    std::uint32_t op = kNever;
  };

  void add_op(const OpRecord& record, std::span<const Operand> operands,
              std::span<const StorageId> fresh);
  void find_period(std::span<const Operand> operands, std::span<const StorageId> fresh);
  void begin_step();
  void end_step();
  void drop_step();
  static void connect(Step& step);
  void follow(const Step& step);
  void pass_op(std::span<const StorageId> fresh);
  void set_next_use(const PinTicket& storage, std::uint32_t op);
  [[nodiscard]] Use use_of(StorageId storage) const;
  [[nodiscard]] StorageId find(const Use& use) const;

  const Engine& engine_;
  std::vector<std::unique_ptr<Step>> known_;  // the most recently used first
  const Step* following_ = nullptr;
  ById<StorageId, NextUse> next_uses_;  // in the step that is followed
  SpillForecast forecast_;
  CopyLoad load_;

  PeriodFinder periods_;
  std::uint64_t ops_since_mark_ = 0;
  std::uint64_t shortest_marked_ = 0;  // least number of ops between two marks; 0: no mark

  // State of the running step.
  Step step_;
  std::vector<PinTicket> made_;  // new storages of its ops
  std::vector<std::uint32_t> first_made_{0};
  std::uint64_t name_ = 0;  // hash of the name of the op that began last
};

// Whether a run with these options has a NextUsePredictor, and whether it has a Foresight.
[[nodiscard]] RECOUP_API bool has_next_use_predictor(const Options& options);
[[nodiscard]] RECOUP_API bool has_foresight(const Options& options);

}  // namespace recoup::detail
