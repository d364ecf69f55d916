// Director: observes one simulated run of a step, and tells its engine what to evict.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "csrc/engine/base/future.h"
#include "csrc/engine/base/observer.h"
#include "csrc/simulator/simulator.h"
#include "csrc/steps/follow/block_follower.h"
#include "csrc/steps/follow/eviction_list.h"
#include "csrc/steps/follow/planned_writes.h"
#include "csrc/steps/place/block_log.h"
#include "csrc/steps/trial/last_uses.h"
#include "csrc/steps/trial/recorded_step.h"
#include "csrc/steps/trial/step_uses.h"

namespace recoup::detail {

// A score for evictions in a known step.
struct StepScore {
  OracleOptions terms;
  // The price of copies, see UseForecast; nullopt: as measured.
  std::optional<double> waited_part = std::nullopt;
  // By op of the step: Candidate::priority of all its results. Empty: 0 for all.
  std::vector<std::int8_t> priorities{};
  // Evictions of an earlier trial: what it spilled is written as soon as it is made.
  EvictionList writes{};
  // When the step begins, by block from before it; nullopt: as recorded.
  std::optional<TierContent> tier = std::nullopt;
};

// What a run of a step allocates if addresses do not matter.
struct TrialBlocks {
  BlockLog log;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // By block from before the step: index of its life; kNone: its content is spilled.
  std::vector<std::size_t> before;
  std::vector<BlockKind> kinds;         // by life that survives: the block's kind in the next run
  std::map<std::size_t, Made> fetches;  // by life: the value that is fetched ahead into it
  // The evictions, each as soon as the value is no longer used or the tier has a copy of it, and by
  // life the number of these before it.
  EvictionList early;
  std::vector<std::uint32_t> early_before;
};

class Director final : public Observer, public VictimPlan, public Future {
 public:
  struct Orders {
    const RecordedStep& step;
    const StepScore* score = nullptr;
    const EvictionList* list = nullptr;
    const BlockPlan* plan = nullptr;
    TrialBlocks* blocks = nullptr;
    PlannedWrites* writes = nullptr;  // null: none are known
    const std::atomic<bool>* stop = nullptr;
  };
  // All arguments must outlive it.
  Director(const Simulator& simulator, const StepUses& uses, const Orders& orders);
  [[nodiscard]] StepForecast& forecast() { return forecast_; }

  // ---- results ----
  [[nodiscard]] std::uint32_t op_count() const { return log_.op_count(); }
  [[nodiscard]] std::uint32_t elsewhere() const { return follower_.elsewhere(); }
  // The kind, in the next run, of a block that survives the step.
  [[nodiscard]] BlockKind kind_of(const BlockLog::Life& life) const;
  // The storage that is, in the next run, what the block from before the step was in this one.
  // Invalid: it does not exist any more.
  [[nodiscard]] StorageId successor(const RecordedStep::Before& before) const;
  // Sets TrialBlocks::early.
  void find_early();
  std::vector<std::uint32_t> take_replays() { return std::move(replays_); }
  std::vector<EvictionList::Entry> take_done() { return std::move(done_); }

  // ---- VictimPlan ----
  [[nodiscard]] PlannedVictim next() const override;
  [[nodiscard]] std::optional<Nanoseconds> moves_next() const override;
  void on_room_by_moves() override;
  [[nodiscard]] bool places() const override;
  [[nodiscard]] std::optional<PlannedPlace> begin_block(Bytes size) override;
  [[nodiscard]] PlannedVictim victim_before_block() override;
  [[nodiscard]] Arrangement take_arrangement() override;
  void end_block(bool as_planned, bool moved) override;
  [[nodiscard]] bool copies() const override { return orders_.plan != nullptr; }
  [[nodiscard]] ValueId next_to_write() override { return forecast_.next_to_write(); }
  [[nodiscard]] std::optional<PlannedFetch> begin_fetch() override;
  void end_fetch(bool begun, bool moved) override;
  void on_fetch_ahead(ValueId value) override;

  // ---- Future ----
  [[nodiscard]] Nanoseconds until_use(StorageId storage) const override;
  [[nodiscard]] std::int8_t priority(ValueId value) const override;

  // ---- Observer ----
  void on_op_ahead(std::string_view name, std::span<const Operand> operands) override;
  void on_external(StorageId storage, const OutsideStorage& outside) override;
  void on_adopt(const FreshStorage& fresh, StorageId storage) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_evict(ValueId value) override { add_victim(value, false); }
  void on_spill(ValueId value) override { add_victim(value, true); }
  void on_replay(std::string_view name, OpId id, const Op& op) override;

 private:
  void begin();
  void add_storage(StorageId storage);
  void add_victim(ValueId value, bool spills);
  void add_done(const EvictionList::Entry& entry, std::uint32_t earliest);
  void add_fetch(const std::optional<Made>& value);
  void stop_if_asked() const;
  [[nodiscard]] const Engine& engine() const { return simulator_.engine(); }

  const Simulator& simulator_;
  StorageNames names_;
  StepLog log_;
  StepForecast forecast_;
  const Orders orders_;
  BlockFollower follower_;
  std::optional<LastUses> last_uses_;  // if blocks are wanted
  std::optional<Made> fetch_;          // the value of the planned fetch that is due
  bool begun_ = false;                 // an op has run
  bool arranged_ = false;              // blocks from before the step lie where the plan says
  StepHash running_ = 0;
  std::vector<std::uint32_t> ops_;  // number of the op, by sequence number in the engine
  std::vector<std::uint32_t> replays_;
  std::vector<EvictionList::Entry> done_;
  std::vector<std::uint32_t> early_;  // by entry of done_: the life before which it can be
  std::uint32_t moves_ = 0;           // during the running op
};

}  // namespace recoup::detail
