// Makes a schedule of one training step and drives the next ones with it.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/schedule/schedule.h"

namespace recoup::detail {

// A schedule and the step that it was made of.
struct StepPlan {
  StepPlan(ScheduleKind kind, TraceGraph step, std::span<const std::string> names, Bytes budget);

  TraceGraph graph;
  Schedule schedule;
  std::vector<std::vector<std::uint32_t>> restores;  // by op: values, those that open here
  std::vector<std::vector<std::uint32_t>> drops;     // by op: values that nothing keeps behind it
};

// Note [Following a plan]
// Every step is written down as it runs, as a graph of its own. While it is op for op, input for
// input the step that a plan was made of, that plan drives it. It may begin a few ops late, for
// what a program does between its optimizer's step and the next batch counts to the next step. At
// the first op that differs another plan is tried that agrees with all that was seen; without one
// the rest of the step is left to the policy, and a plan is made of it. So a warm-up step, an
// optimizer that makes its state in the first step, and two optimizers that take turns all find
// their plan after a while.
//
// To be given to an engine as schedule and as observer before it runs anything.
class ScheduleRunner final : public ScheduleHooks, public Observer {
 public:
  // `budget`: what the schedules are made for. What runs for longer than `most_ops` without the end
  // of a step is none (a program that marks no steps, a long evaluation): it is not written down.
  ScheduleRunner(Engine& engine, ScheduleKind kind, Bytes budget, std::size_t most_ops = kMostOps);

  // ScheduleHooks.
  void before_op(std::string_view name, std::span<const Operand> operands) override;
  void after_op() override;
  [[nodiscard]] bool keeps(const ValueTicket& ticket) const override;

  // Observer.
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_death(StorageId storage) override { builder_.end_storage(storage.index()); }
  void on_disown(StorageId storage) override { builder_.end_storage(storage.index()); }
  void on_escape(StorageId storage) override { builder_.escape(storage.index()); }
  void on_leave(StorageId storage) override { builder_.leave(storage.index()); }
  void on_pin(StorageId storage) override { builder_.keep(storage.index()); }
  void on_step(std::string_view name) override;
  void on_replay(std::string_view name, OpId id, const Op& op) override;

  // Makes a plan of what has run since the last step, as if a step ended here.
  void end_step();
  // The plans that were made, the newest first, and plans to begin with. Names go with them.
  struct Plans {
    std::vector<std::string> names;
    std::vector<std::unique_ptr<StepPlan>> plans;
  };
  [[nodiscard]] Plans take_plans();
  void set_plans(Plans plans);
  // Ops that a plan has driven.
  [[nodiscard]] std::int64_t driven() const { return driven_; }

 private:
  static constexpr std::size_t kMostPlans = 8;
  static constexpr std::size_t kMostOps = std::size_t{1} << 20;

  // How far a plan agrees with the running step, and which of its values is which of the step's.
  struct Following {
    const StepPlan* plan = nullptr;
    std::uint32_t start = 0;  // op of the step that is the plan's first
    std::uint32_t next = 0;   // of the plan's ops: all before agree
    // Value of the step by value of the plan, up to the last that was seen; and the other way
    // round. They grow as the plan is followed: it costs little to try one that soon differs.
    std::vector<std::uint32_t> seen;
    std::unordered_map<std::uint32_t, std::uint32_t> planned;

    [[nodiscard]] bool ended() const { return plan != nullptr && next == plan->graph.ops.size(); }
  };

  [[nodiscard]] std::uint32_t position() const {
    return static_cast<std::uint32_t>(builder_.graph().ops.size());
  }
  std::uint32_t name_index(std::string_view name);
  void write_down(const OpRecord& record, std::span<const Operand> operands,
                  std::span<const StorageId> fresh);
  // Goes on with the step's next op. False: it is another than the plan's.
  bool advance(Following& following) const;
  // The value of the step is the value of the plan from now on. False: one of them is another.
  bool bind(Following& following, std::uint32_t planned, std::uint32_t seen) const;
  [[nodiscard]] Following follow(const StepPlan& plan, std::uint32_t start) const;
  void find_plan();
  // Forgets the running step, of which nothing is kept.
  void forget_step();
  void let_go();
  [[nodiscard]] bool may_replay_a_step() const;
  bool keep_until(std::uint32_t planned, std::uint32_t op);
  void drop(std::uint32_t planned);
  [[nodiscard]] bool kept_at(std::uint32_t planned, std::uint32_t op) const {
    return interval_at(following_.plan->schedule.kept[planned], op) != nullptr;
  }
  [[nodiscard]] const ValueTicket& ticket(std::uint32_t planned) const {
    return tickets_[following_.seen[planned]];
  }

  Engine& engine_;
  ScheduleKind kind_;
  Bytes budget_;
  std::size_t most_ops_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> name_indexes_;
  std::vector<std::unique_ptr<StepPlan>> plans_;  // the last used first
  std::int64_t driven_ = 0;

  // Of the running step.
  GraphBuilder builder_;
  bool too_long_ = false;
  Following following_;
  std::unordered_map<std::thread::id, std::uint32_t> running_;  // name of the op, by thread
  std::vector<ValueTicket> tickets_;                            // by value
  std::unordered_map<std::uint32_t, std::uint32_t> by_value_;   // ValueId to value
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ops_;    // sequence and op, ascending
  std::vector<ValueTicket> kept_;                               // that the engine keeps for us
  std::vector<std::uint64_t> replayed_;                         // since the last op ended
};

}  // namespace recoup::detail
