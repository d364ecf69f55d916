// Foresight: recognizes repeated steps and plans evictions for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/steps/evict/known_step.h"
#include "csrc/steps/evict/planner_thread.h"
#include "csrc/steps/follow/block_follower.h"
#include "csrc/steps/follow/planned_writes.h"
#include "csrc/steps/track/step_tracker.h"
#include "recoup/api.h"

namespace recoup::detail {

// Note [Following a list]
// Every running step is hashed. It is recorded unless planning is fruitless. When a step ends that
// has run before, an eviction list is planned for it: while the program waits, or on a thread.
// While a later step is equal to a known one, its list names the victims. From the first op that
// differs, the list of another known step that began in the same way is used, or none. If the
// budget changes, lists are planned again; the old list is one of those tried.
//
// Note [A list that costs more than was planned]
// The state of the pool is not the same in every step, so a step may cost more than planned. When
// several steps together cost much more, the list is planned again from the current state of the
// pool: at the first, second, fourth time and so on, so that planning becomes rare. The list is
// set aside when its last steps cost more, in the median, than the last ones by the policy alone:
// of each step the cost is taken relative to that of its ops. It includes a price for the plans of
// the policy, so that a list of the policy's own evictions is used. A list whose steps together
// cost three times that too much is set aside at once, which bounds the loss. Then the policy runs
// the step three times, and is measured anew: what it costs may have changed (state that was just
// made can be recomputed, and later it cannot). If it costs more than the list did, the list is
// used again. With a spill tier this is done once for a plan of blocks that costs nearly as much as
// the last step before it, and a second plan is made from the first run that followed one, because
// its cost depends on what the tier has when the step begins.
//
// A list that a thread has found is used from the next op that begins.
//
// Must be set as the engine's victim plan and observer before the engine runs anything. Its
// list of observers is the recorder of the running step, or empty.
class RECOUP_API Foresight final : public StepTracker, public VictimPlan {
 public:
  struct Settings {
    std::int64_t work = 6'000'000;  // work limit of a plan, see plan_step
    bool at_once = false;           // plan after the first run of a step
    bool background = false;        // plan on a thread instead of at the end of the step
    bool recorded = false;          // make no plans: they come from a trace
  };
  explicit Foresight(Engine& engine) : Foresight(engine, Settings()) {}
  Foresight(Engine& engine, const Settings& settings);

  // The known steps at the end of a run, with which another run of the same program can start.
  [[nodiscard]] KnownSteps take_known();
  void set_known(KnownSteps known) { known_ = std::move(known); }

  // Stops planning on the thread. It may start again at the end of a step.
  void cancel_planning() noexcept;
  void stop_planning_for_good() noexcept { thread_.stop_for_good(); }

  // VictimPlan.
  [[nodiscard]] PlannedVictim next() const override;
  [[nodiscard]] std::optional<Nanoseconds> moves_next() const override;
  void on_room_by_moves() override {
    ++moves_;
    ++move_searches_;
  }
  void on_recorded(const TracePlan& plan, const TracePlanLists& lists) override;
  [[nodiscard]] bool places() const override;
  [[nodiscard]] std::optional<PlannedPlace> begin_block(Bytes size) override;
  [[nodiscard]] PlannedVictim victim_before_block() override;
  [[nodiscard]] Arrangement take_arrangement() override;
  void end_block(bool as_planned, bool moved) override;
  [[nodiscard]] bool copies() const override { return writes_.has_value() && places(); }
  [[nodiscard]] ValueId next_to_write() override { return writes_->next(engine_); }
  [[nodiscard]] std::optional<PlannedFetch> begin_fetch() override;
  void end_fetch(bool begun, bool moved) override;
  [[nodiscard]] bool disturbs() const override { return thread_.working(); }
  void add_to(Stats& stats) const override;

  // Observer.
  void on_op_ahead(std::string_view name, std::span<const Operand> operands) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_evict(ValueId value) override;
  void on_spill(ValueId value) override;
  void on_step(std::string_view name) override;
  void on_plan(const TracePlan& /*plan*/, const TracePlanLists& /*lists*/) override {}

 private:
  static constexpr std::size_t kMostKnown = 8;
  static constexpr std::size_t kMostSeen = 16;
  // After this number of steps without a new plan, only one step in kFruitless is recorded. A
  // prime, so that the period differs from that of alternating steps.
  static constexpr std::int64_t kFruitless = 17;

  void begin_step();
  void end_step();
  void drop_step();
  void forget_step();
  void follow();
  [[nodiscard]] KnownStep* agreeing();
  // `repeats`: the running step was equal to the previous one.
  void plan(KnownStep& step, bool repeats);
  void plan_on_thread(KnownStep& step, bool repeats);
  [[nodiscard]] RecordedStep take_recorded(const KnownStep& step, bool repeats);
  KnownStep& add_known(StepHash hash);
  void adopt();
  void adopt_recorded();
  void put(KnownStep& step, std::optional<StepEvictions> evictions);
  void tell(const KnownStep& step);
  void watch(KnownStep& step);
  void plan_twice(KnownStep& step);
  void watch_list(KnownStep& step, double cost);
  // True: the second plan cost more, and the first one is back.
  bool goes_back(KnownStep& step);
  // Relative cost of the step that has ended under the policy alone, as measured in earlier runs,
  // or else as predicted.
  [[nodiscard]] std::optional<double> policy_cost(const KnownStep& step) const;
  void set_aside(KnownStep& step);
  // The step has ended. No list was used in it.
  void measure_policy(KnownStep& step);
  [[nodiscard]] bool worth_recording() const;
  // Cost of replays, moves and copies so far.
  [[nodiscard]] Nanoseconds cost() const {
    const Stats& stats = engine_.counters();
    return Nanoseconds(stats.replay_cost_ns + stats.spill_cost_ns) + engine_.context().move_cost();
  }
  void count_listed(ValueId victim);
  [[nodiscard]] bool has_tier() const { return engine_.options().spill > Bytes(0); }
  // Cost of the search for victims in the step, of its replays, moves and copies, and of its ops,
  // in ns.
  [[nodiscard]] double search_cost() const;
  [[nodiscard]] double step_cost() const {
    return static_cast<double>((cost() - cost_before_).count());
  }
  [[nodiscard]] double op_cost() const;
  // The cost of the search and of the rest, relative to the ops.
  [[nodiscard]] double relative_cost() const;
  // Cost of its replays, moves and copies, relative to the plan's at the costs of its ops.
  [[nodiscard]] double over_plan(const KnownStep& step) const;
  [[nodiscard]] KnownStep* find(StepHash hash);

  Engine& engine_;
  const Settings settings_;
  Bytes budget_;
  KnownSteps known_;
  std::vector<StepHash> seen_;  // hashes of steps that are not known yet
  std::int64_t fruitless_ = 0;  // steps since a plan was made or requested
  StepHash in_place_ = 0;       // hash of the last step if its blocks all lie as planned; else 0
  StepHash last_ = 0;           // hash of the last step; 0: it was given up
  Stats counts_;                // the counters that add_to() adds

  // State of the running step.
  std::vector<Nanoseconds> costs_;  // costs of its ops
  std::uint32_t moves_ = 0;  // number of times that room was made by moves during the running op
  BlockFollower follower_;
  bool arranged_ = false;                // blocks from before the step lie where the plan says
  bool arranging_ = false;               // whether that was looked at
  bool as_planned_ = true;               // no block had to be moved or was allocated elsewhere
  std::optional<PlannedWrites> writes_;  // of the plan that is followed
  bool begun_ = false;                   // an op has run
  KnownStep* following_ = nullptr;
  bool followed_all_ = false;  // the same list has been used since the step began
  bool list_used_ = false;     // a list has been used since the step began
  Nanoseconds cost_before_{0};
  std::int64_t plans_before_ = 0;
  std::int64_t move_searches_ = 0;  // number of times that room was made by moves
  std::unique_ptr<StepRecorder> recorder_;
  std::optional<PlannerThread::Found> recorded_;  // used from the next op
  PlannerThread thread_;
};

}  // namespace recoup::detail
