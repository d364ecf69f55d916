// ScheduleRunner: plans a schedule from a training step and applies it to later steps.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "csrc/schedule/schedule.h"
#include "recoup/api.h"

namespace recoup::detail {

// A schedule and the graph of the step that it was planned from.
struct StepPlan {
  StepPlan(ScheduleKind kind, TraceGraph step, std::span<const std::string> names, Bytes budget);

  TraceGraph graph;
  Schedule schedule;
  // By op: values whose intervals open at this op.
  std::vector<std::vector<std::uint32_t>> restores;
  // By op: values that no interval keeps after this op.
  std::vector<std::vector<std::uint32_t>> drops;
};

// Note [Following a plan]
// Every step is recorded as a graph while it runs. As long as its ops and their inputs are equal to
// those of a step with a plan, that plan drives it. Following may start a few ops late, because ops
// between the optimizer's step and the next batch count towards the next step. At the first op that
// differs, another plan is tried that agrees with everything seen so far. If there is none, the
// policy alone decides for the rest of the step, and a plan is made from it. This covers a warm-up
// step, an optimizer that creates its state in the first step, and two optimizers that alternate.
//
// Must be set as the engine's schedule and observer before the engine runs anything.
class ScheduleRunner final : public ScheduleHooks, public Observer {
 public:
  // `budget`: the budget that schedules are planned for. A sequence of more than `most_ops` ops
  // without the end of a step is not a step and is not recorded (a program that marks no steps, a
  // long evaluation).
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

  // Plans from what has run since the last step, as if a step ended here.
  void end_step();
  // Plans, the newest first, and the names that they refer to. Plans of another runner can be set
  // at the start.
  struct Plans {
    std::vector<std::string> names;
    std::vector<std::unique_ptr<StepPlan>> plans;
  };
  [[nodiscard]] Plans take_plans();
  RECOUP_API void set_plans(Plans plans);
  // Number of ops that a plan has driven.
  [[nodiscard]] std::int64_t driven() const { return driven_; }

 private:
  static constexpr std::size_t kMostPlans = 8;
  static constexpr std::size_t kMostOps = std::size_t{1} << 20;

  // How far a plan agrees with the running step, and which values correspond.
  struct Following {
    const StepPlan* plan = nullptr;
    std::uint32_t start = 0;  // number of the step's op that is the plan's first op
    std::uint32_t next = 0;   // number of the plan's next op: all previous ones agree
    // Value of the step by value of the plan, up to the last one seen; and the reverse. They grow
    // while the plan is followed, so it is cheap to try a plan that soon differs.
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
  // Compares the step's next op with the plan. False: they differ.
  bool advance(Following& following) const;
  // Records that two values correspond. False: one of them corresponds to another value.
  bool bind(Following& following, std::uint32_t planned, std::uint32_t seen) const;
  [[nodiscard]] Following follow(const StepPlan& plan, std::uint32_t start) const;
  void find_plan();
  // Discards the running step.
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
  std::vector<std::unique_ptr<StepPlan>> plans_;  // the most recently used first
  std::int64_t driven_ = 0;

  // State of the running step.
  GraphBuilder builder_;
  bool too_long_ = false;
  Following following_;
  std::unordered_map<std::thread::id, std::uint32_t> running_;  // name of the op, by thread
  std::vector<ValueTicket> tickets_;                            // by value of the step
  std::unordered_map<std::uint32_t, std::uint32_t> by_value_;   // ValueId to value of the step
  std::vector<std::pair<std::uint64_t, std::uint32_t>> ops_;    // sequence number and op, ascending
  std::vector<ValueTicket> kept_;        // values that the engine keeps for the runner
  std::vector<std::uint64_t> replayed_;  // ops that were replayed since the last op ended
};

}  // namespace recoup::detail
