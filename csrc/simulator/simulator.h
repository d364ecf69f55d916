// Simulator: runs a trace on the engine, pool and policies of live runs, on a device without
// memory. Also computes the cost of a step while a program runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/engine/base/observers.h"
#include "csrc/engine/base/tier_store.h"
#include "csrc/engine/program/engine.h"
#include "csrc/engine/program/window_charge.h"
#include "csrc/schedule/runner.h"
#include "csrc/simulator/kernel_runner.h"
#include "csrc/simulator/noise.h"
#include "csrc/simulator/uses.h"
#include "recoup/simulation.h"
#include "recoup/trace.h"

namespace recoup::detail {

// More than any machine has.
inline constexpr Bytes kUnbounded{std::int64_t{1} << 50};

// What the spill tier has of the first blocks that a program allocates outside of ops, by block.
// Blocks beyond the end have nothing there.
struct TierContent {
  std::vector<bool> spilled{};  // the content is there, and the block is free
  std::vector<bool> clean{};    // there is a copy of the content
  [[nodiscard]] bool is_spilled(std::size_t block) const {
    return block < spilled.size() && spilled[block];
  }
  [[nodiscard]] bool is_clean(std::size_t block) const {
    return block < clean.size() && clean[block];
  }
  friend bool operator==(const TierContent&, const TierContent&) = default;
};

// Where blocks lie before a program begins.
struct StartingPool {
  struct Place {
    PoolOffset offset;
    Bytes size;
    bool placed = false;  // whether its storage is placed, see HeldStorage
  };
  // Places of the first blocks that the program allocates outside of ops; nullopt: anywhere.
  std::vector<std::optional<Place>> blocks;
  TierContent tier{};
  // Places of other blocks, which stay allocated.
  std::vector<Place> others{};
};

class RECOUP_API Simulator final : private Device {
 public:
  // `trace` must be valid (see validate) and outlive this object. `observer` may be null. A
  // schedule is planned for `schedule_budget`; 0: for the engine's budget.
  Simulator(const Trace& trace, const SimulationOptions& options, Observer* observer,
            Bytes schedule_budget = Bytes(0));
  ~Simulator() override;
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  SimulationResult run();
  // Plans of a policy with a schedule: see ScheduleRunner. `take_plans` ends the last step.
  void set_plans(ScheduleRunner::Plans plans) { runner_->set_plans(std::move(plans)); }
  [[nodiscard]] ScheduleRunner::Plans take_plans();
  [[nodiscard]] const Engine& engine() const { return *engine_; }
  [[nodiscard]] Engine& engine() { return *engine_; }
  // The storages so far, by number in the trace.
  [[nodiscard]] const std::vector<StorageId>& storages() const { return storages_; }

  // ---- before the run ----
  // Sets the observers, in the order in which they are called. Both may be null.
  void observe(Observer* first, Observer* second = nullptr);
  void begin_in(StartingPool pool);
  // Charges overflow memory from the beginning; 0: when it is needed.
  void begin_with_window(Bytes window) { first_window_ = window; }
  // Charges bytes outside the pool, for the whole run, that belong to no storage of the program.
  void begin_with_unseen(Bytes unseen) { unseen_ = unseen; }
  // Ends the run as too slow if replays and copies cost more.
  void set_most_cost(Nanoseconds most) { most_cost_ = most; }
  // Knowledge for a policy that looks ahead; otherwise null.
  [[nodiscard]] const Future* future() const { return uses_ ? &*uses_ : nullptr; }

 private:
  void fill_tier();
  void fill_pool();
  void apply(const TraceEvent& event);
  void allocate(const TraceEvent& event);
  void end_step(std::string_view name);
  void take_recorded(const TracePlan& plan);
  void begin_parts(const TraceListOp& op);
  void end_parts();
  void run_op(const TraceOp& op);
  class SimulatedKernel;
  void run_in_budget(const TraceOp& op);
  void charge_window(Bytes window);
  [[nodiscard]] static KernelLimits limits_of(const TraceOp& op) {
    return {.may_overflow = op.may_overflow, .once = op.once};
  }
  void end_op(const TraceOp& op);
  [[nodiscard]] std::uint32_t number_of(const TraceOp& op) const {
    return static_cast<std::uint32_t>(&op - trace_.ops.data());
  }
  void add_storage(StorageId id);
  void add_external(const TraceEvent& event);
  void adopt(std::uint32_t block, Bytes nbytes);
  [[nodiscard]] FreshStorage content(BlockId block, Bytes nbytes);
  void disown(StorageId storage);
  [[nodiscard]] Nanoseconds replay_cost() const;
  [[nodiscard]] Nanoseconds spill_cost() const;
  [[nodiscard]] bool too_slow() const;
  void count_replay();

  // Device.
  Measurement replay(void* payload, std::span<const Location> inputs,
                     std::span<const PoolOffset> written, std::span<BlockId> outputs) override;
  void release(void* /*payload*/) noexcept override {}
  [[nodiscard]] bool may_overwrite(const void* payload, std::size_t input) const override;
  [[nodiscard]] std::size_t payload_bytes(const void* payload) const noexcept override;
  void attach(void* /*handle*/, PoolOffset /*offset*/) noexcept override {}
  [[nodiscard]] bool detach(void* /*handle*/, PoolOffset /*offset*/) noexcept override {
    return true;
  }
  void take_over(void* /*external*/) noexcept override {}
  [[nodiscard]] bool move_out(void* /*handle*/, PoolOffset /*offset*/,
                              Bytes /*nbytes*/) noexcept override {
    return true;
  }
  void forget(void* /*external*/) noexcept override {}
  void copy(PoolOffset /*to*/, const Location& /*from*/, Bytes /*size*/) override {}
  [[nodiscard]] void* address(const Location& /*location*/) override { return nullptr; }
  [[nodiscard]] TierStore* tier() noexcept override { return &tier_; }
  [[nodiscard]] bool lend_tier() noexcept override { return true; }
  void poison(PoolOffset /*at*/, Bytes /*size*/) noexcept override {}
  std::uint64_t hash(const Location& /*from*/, Bytes /*size*/, const void* /*payload*/,
                     std::size_t /*result*/) override {
    return 0;
  }
  [[nodiscard]] std::string name(const void* payload) const override;
  void sweep_external() override {}

  // A tier without memory, whose copies succeed.
  class NoStore final : public TierStore {
   public:
    void begin_write(Bytes /*to*/, const void* /*from*/, Bytes /*size*/) override {}
    [[nodiscard]] bool end_write(Bytes /*to*/) override { return true; }
    [[nodiscard]] bool holds(Bytes /*place*/, const void* /*bytes*/,
                             Bytes /*size*/) const override {
      return true;
    }
    void begin_read(void* /*to*/, Bytes /*from*/, Bytes /*size*/) override {}
    void end_read(Bytes /*from*/) override {}
    [[nodiscard]] std::optional<TierSpeed> speed() override { return std::nullopt; }
  };

  const Trace& trace_;
  NoStore tier_;
  Observer* observer_ = nullptr;  // of the engine; null: none
  SimulationOptions options_;
  std::vector<StorageId> storages_;                                 // by number in the trace
  std::vector<BlockId> blocks_;                                     // by number in the trace
  std::unordered_map<std::uint32_t, std::vector<PinTicket>> pins_;  // by number of the storage
  std::size_t event_ = 0;                                           // number of the current event
  std::vector<Operand> operands_;
  Bytes unseen_{0};        // bytes outside the pool that belong to no storage of the program
  Bytes first_window_{0};  // charged for overflow memory from the beginning
  WindowCharge window_;
  bool in_parts_ = false;  // whether room is held for the parts of an op on lists
  std::size_t op_ = 0;     // number of the current op
  std::int64_t replays_ = 0;
  Nanoseconds most_cost_;
  StartingPool starting_pool_;
  std::vector<BlockId> first_blocks_;  // blocks of starting_pool_; invalid: anywhere
  std::unordered_map<std::uint32_t, StorageId> first_spilled_;  // by block of starting_pool_
  bool tier_filled_ = true;             // all content that was to be spilled first has been
  std::int64_t spill_cost_before_ = 0;  // of filling the tier, in ns
  Nanoseconds plain_{0};                // cost of the program's ops so far
  Nanoseconds replayed_{0};  // actual cost of replays; the engine's own count includes noise
  std::optional<CostNoise> noise_;
  std::optional<TraceUses> uses_;  // for a policy that looks ahead
  std::optional<Engine> engine_;   // its destructor calls the device
  KernelRunner kernels_;
  std::optional<ScheduleRunner> runner_;  // for a policy with a schedule
  Observers observers_;                   // the runner and those of observe()
};

}  // namespace recoup::detail
