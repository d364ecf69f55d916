// Foresight: knows the steps that a program repeats, and what to evict in them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/engine/base/observer_pair.h"
#include "csrc/foresight/planner_thread.h"

namespace recoup::detail {

// Note [Following a list]
// Every step is hashed as it runs, and written down until it is known. When one ends that has run
// before, a list of evictions is planned for it, there or beside the program. While a later
// step does what a known one did, its list names victims first. At the first op that differs the
// list is off, unless another known step has begun like this one. Lists for another budget are
// planned anew; what they were is tried among others.
//
// Note [A list that costs more than was planned]
// The pool is not the same in every step, so a step may cost more than was planned. When several
// cost much more together the list is planned anew, from the pool as it lies then: the first, the
// second, the fourth time, and so on, so that plans cost ever less. When they cost more than the
// policy was to cost alone, by as much as one step of it, it is alone again: that is what can be
// lost.
//
//
// What is found beside the program is in force from the op on that begins next.
//
// To be given to an engine as planned victims and as observer before it runs anything.
class Foresight final : public ObserverPair, public PlannedVictims {
 public:
  struct KnownStep {
    std::vector<StepHash> hashes;  // by op: of all before it and of what it is called with
    StepHash hash = 0;
    std::optional<StepEvictions> evictions;  // none: the policy alone
    // Note [A list that costs more than was planned], in ns.
    double excess = 0;         // over what was planned
    std::uint32_t dearer = 0;  // how often that was too much
    double debt = 0;           // over what the policy alone was to cost
    bool again = false;        // it is to be planned anew
    bool in_work = false;      // that is being done
    StepHash successor = 0;    // the step that came after it last time
  };
  // The last used first.
  using KnownSteps = std::vector<std::unique_ptr<KnownStep>>;

  struct Settings {
    std::int64_t work = 1'500'000;  // for a plan, see plan_step
    bool at_once = false;           // a plan is made of a step that has run once
    bool beside = false;            // on a thread, and not where the step ends
    bool recorded = false;          // none is made: they are a trace's
  };
  explicit Foresight(Engine& engine) : Foresight(engine, Settings()) {}
  Foresight(Engine& engine, const Settings& settings);

  // What a run of the same program knows when it has ended, for the next one to begin with.
  [[nodiscard]] KnownSteps take_known();
  void set_known(KnownSteps known) { known_ = std::move(known); }

  // Nothing goes on beside the program when this returns; it may begin at the end of a step.
  void cancel_planning() noexcept;
  void stop_planning_for_good() noexcept { thread_.stop_for_good(); }

  // PlannedVictims.
  void before_op(std::string_view name, std::span<const Operand> operands) override;
  void on_no_op() override { running_.reset(); }
  [[nodiscard]] ValueId next() const override;
  [[nodiscard]] std::optional<Nanoseconds> moves_next() const override;
  void on_room_by_moves() override { ++moves_; }
  void on_recorded(const TracePlan& plan, std::span<const TraceEviction> evictions) override;
  [[nodiscard]] bool disturbs() const override { return thread_.working(); }
  void add_to(Stats& stats) const override;

  // Observer.
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_external(StorageId storage, Bytes nbytes, bool among_outside) override;
  void on_adopt(const FreshStorage& fresh, StorageId storage) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_op_failed() override;
  void on_evict(ValueId value) override;
  void on_step(std::string_view name) override;
  void on_plan(const TracePlan& /*plan*/, std::span<const TraceEviction> /*evictions*/) override {}

 private:
  static constexpr std::size_t kMostKnown = 8;
  static constexpr std::size_t kMostSeen = 16;
  // What runs for longer without the end of a step is none.
  static constexpr std::uint32_t kMostOps = 1U << 16;
  // After so many steps without a new plan one in as many is written down. A prime: steps that take
  // turns have another period.
  static constexpr std::int64_t kFruitless = 17;

  void begin_step();
  void end_step();
  void drop_step();
  void forget_step();
  void follow(StepHash hash);
  [[nodiscard]] KnownStep* agreeing(StepHash hash);
  // `repeats`: the running step has done what the step before did.
  void plan(KnownStep& step, bool repeats);
  void plan_beside(KnownStep& step, bool repeats);
  KnownStep& add_known(StepHash hash);
  void adopt();
  void adopt_recorded();
  void put(KnownStep& step, std::optional<StepEvictions> evictions);
  void tell(const KnownStep& step);
  void watch(KnownStep& step);
  [[nodiscard]] bool worth_recording() const;
  // Of replays and moves, so far.
  [[nodiscard]] Nanoseconds cost() const {
    return Nanoseconds(engine_.counters().replay_cost_ns) + engine_.context().move_cost();
  }
  [[nodiscard]] KnownStep* find(StepHash hash);

  Engine& engine_;
  const Settings settings_;
  Bytes budget_;
  KnownSteps known_;
  std::vector<StepHash> seen_;  // of steps that are not known
  std::int64_t fruitless_ = 0;  // steps since a plan was made, or wanted
  StepHash last_ = 0;           // the last step; 0: it was given up
  Stats counts_;                // those that it adds to

  // Of the running step.
  StepLog log_;
  std::vector<StepHash> hashes_;
  std::vector<Nanoseconds> costs_;   // of its ops
  std::optional<StepHash> running_;  // op
  std::uint32_t moves_ = 0;          // times that room was made by moves while it runs
  int open_ops_ = 0;                 // of all threads
  bool begun_ = false;               // an op ran
  bool given_up_ = false;            // it is too long, or threads run ops side by side
  KnownStep* following_ = nullptr;
  bool followed_all_ = false;  // one list has been in force since the step began
  Nanoseconds cost_before_{0};
  std::unique_ptr<StepRecorder> recorder_;
  std::optional<PlannerThread::Found> recorded_;  // in force from the next op on
  PlannerThread thread_;
};

}  // namespace recoup::detail
