// StepUses: which storages the ops of a recorded step use, when the step repeats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/base/use_forecast.h"
#include "csrc/steps/follow/planned_writes.h"
#include "csrc/steps/trial/recorded_step.h"

namespace recoup::detail {

class StepUses {
 public:
  explicit StepUses(const RecordedStep& step);

  [[nodiscard]] std::uint32_t ops() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  // Numbers of the storages in the trace.
  [[nodiscard]] std::span<const std::uint32_t> used_by(std::uint32_t op) const {
    return std::span(used_).subspan(first_[op], first_[op + 1] - first_[op]);
  }
  // The number of ops from `op` to the storage's next use, in the next run of the step if need be
  // and if the storage is from before the step.
  [[nodiscard]] std::optional<std::uint32_t> next_use(std::uint32_t storage,
                                                      std::uint32_t op) const;
  // The cost of the ops from `op` until that many ops later.
  [[nodiscard]] Nanoseconds cost_of(std::uint32_t op, std::uint32_t ops_later) const;
  [[nodiscard]] bool is_before(std::uint32_t storage) const { return storage < before_; }
  // Whether the next run of the step needs the storage's content.
  [[nodiscard]] bool is_needed_again(std::uint32_t storage) const {
    return is_before(storage) && !uses_[storage].empty() && !ends_[storage];
  }

 private:
  std::uint32_t before_ = 0;                      // number of storages from before the step
  std::vector<std::uint32_t> used_;               // by op, from first_[op] on
  std::vector<std::uint32_t> first_{0};           // with an end marker
  std::vector<std::vector<std::uint32_t>> uses_;  // ops by storage, ascending
  std::vector<bool> ends_;           // by storage: the step frees it or first overwrites it
  std::vector<Nanoseconds> starts_;  // total cost of all previous ops, by op
};

// Predicts the uses in one simulated run of the step.
class StepForecast final : public UseForecast {
 public:
  // All must outlive it. `writes`: null: none are known. `waited_part`: see UseForecast.
  StepForecast(const StepUses& uses, const Engine& engine, PlannedWrites* writes,
               double waited_part)
      : uses_(uses), engine_(engine), writes_(writes), waited_part_(waited_part) {}

  // In the order of their numbers in the trace.
  void add_storage(StorageId id);
  // Invalid: it has died, or is not there yet.
  [[nodiscard]] StorageId find(std::uint32_t number) const {
    const bool lives = number < ids_.size() && engine_.values().holds(ids_[number]);
    return lives ? ids_[number].storage : StorageId();
  }
  void end_op() { ++op_; }
  // The cost of the ops until the storage is used in the next run of the step; nullopt: it is not.
  [[nodiscard]] std::optional<Nanoseconds> until_next_run(StorageId storage) const;

  // ---- UseForecast ----
  [[nodiscard]] bool uses_ahead(std::uint32_t n, std::vector<StorageId>& storages) const override;
  [[nodiscard]] std::optional<std::uint32_t> next_use(StorageId storage) const override;
  [[nodiscard]] ValueId next_to_write() override {
    return writes_ == nullptr ? ValueId() : writes_->next(engine_);
  }
  [[nodiscard]] double waited_part() const override { return waited_part_; }

 private:
  [[nodiscard]] std::optional<std::uint32_t> number_of(StorageId id) const;

  const StepUses& uses_;
  const Engine& engine_;
  PlannedWrites* const writes_;
  const double waited_part_;
  std::uint32_t op_ = 0;                    // number of the running op
  ById<StorageId, std::uint32_t> numbers_;  // plus 1; 0: none
  std::vector<PinTicket> ids_;              // by number
};

}  // namespace recoup::detail
