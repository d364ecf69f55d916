#include "csrc/steps/evict/step_trial.h"

#include <map>
#include <string>
#include <utility>

#include "csrc/simulator/simulator.h"
#include "csrc/steps/evict/cancelled.h"

namespace recoup::detail {
namespace {

constexpr double kMostTimeRatio = 10;  // as in simulations
constexpr std::int64_t kAddressRoom = 256;
constexpr Nanoseconds kNoLimit{std::int64_t{1} << 50};

// Observes one simulated run of a step, and tells its engine what to evict.
class Director final : public Observer, public VictimPlan, public Future {
 public:
  Director(const Engine& engine, const Future* future, const StepScore* score,
           const EvictionList* list, std::size_t ops, const std::atomic<bool>* stop)
      : engine_(engine),
        log_(engine),
        future_(future),
        score_(score),
        list_(list),
        stop_(stop),
        replays_(ops) {}

  // VictimPlan.
  [[nodiscard]] ValueId next() const override {
    return list_ == nullptr ? ValueId() : list_->next(engine_, log_);
  }
  [[nodiscard]] std::optional<Nanoseconds> moves_next() const override {
    const bool named = list_ != nullptr && list_->moves_next(engine_, log_, moves_);
    return named ? std::optional(kNoLimit) : std::nullopt;
  }
  void on_room_by_moves() override {
    done_.push_back({.ops = log_.op_count(), .victim = EvictionList::moves(moves_++)});
  }

  // Future.
  [[nodiscard]] Nanoseconds until_use(StorageId storage) const override {
    return future_->until_use(storage);
  }
  [[nodiscard]] std::int8_t priority(ValueId value) const override {
    if (score_ == nullptr || score_->priorities.empty()) {
      return 0;
    }
    const std::optional<Made> made = log_.find(value);
    return made ? score_->priorities[made->op] : std::int8_t{0};
  }

  // Observer.
  void on_op_ahead(std::string_view name, std::span<const Operand> operands) override {
    stop_if_asked();
    running_ = log_.with(name, operands);
  }
  void on_external(StorageId storage, const OutsideStorage& /*outside*/) override {
    log_.add_storage(storage);
  }
  void on_adopt(const FreshStorage& /*fresh*/, StorageId storage) override {
    log_.add_storage(storage);
  }
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override {
    log_.add_op(running_, record, operands, fresh);
    moves_ = 0;
    const std::uint32_t op = log_.op_count() - 1;
    for (const ValueTicket& ticket : log_.made_by(op)) {
      if (ticket.value.valid()) {
        ops_.resize(ticket.made_by + 1);
        ops_[ticket.made_by] = op;
      }
    }
  }
  void on_evict(ValueId value) override {
    if (const std::optional<Made> made = log_.find(value)) {
      done_.push_back({.ops = log_.op_count(), .victim = *made});
    }
  }
  void on_replay(std::string_view /*name*/, OpId /*id*/, const Op& op) override {
    stop_if_asked();
    ++replays_[ops_[op.sequence]];
  }

  [[nodiscard]] std::uint32_t op_count() const { return log_.op_count(); }
  std::vector<std::uint32_t> take_replays() { return std::move(replays_); }
  std::vector<EvictionList::Entry> take_done() { return std::move(done_); }

 private:
  void stop_if_asked() const {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
      throw PlanCancelled();
    }
  }

  const Engine& engine_;
  StepLog log_;
  const Future* future_;
  const StepScore* score_;
  const EvictionList* list_;
  const std::atomic<bool>* stop_;
  StepHash running_ = 0;
  std::vector<std::uint32_t> ops_;  // number of the op, by sequence number in the engine
  std::vector<std::uint32_t> replays_;
  std::vector<EvictionList::Entry> done_;
  std::uint32_t moves_ = 0;  // during the running op
};

// The program's options without test aids.
Options engine_options(const RecordedStep& step, Bytes budget) {
  Options options = step.options;
  if (options.addresses <= Bytes(0)) {
    options.addresses = options.budget - options.outside;
  }
  options.budget = budget;
  options.cost_model = CostModel::kMeasured;  // costs are those of the record
  options.evict_after_op = false;
  options.check_replays = false;
  options.aids = {};
  return options;
}

}  // namespace

StepTrial::StepTrial(const RecordedStep& step, const std::atomic<bool>* stop)
    : step_(step), stop_(stop) {
  std::map<std::pair<std::uint32_t, std::vector<std::int64_t>>, std::size_t> kinds;
  const Trace& trace = step.trace;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != TraceEvent::Kind::kOp || trace.ops[event.index].failed) {
      continue;
    }
    const TraceOp& op = trace.ops[event.index];
    StepOp& added = ops_.emplace_back();
    added.cost = op.cost;
    std::vector<std::int64_t> sizes;
    for (const TraceFresh& fresh : trace.fresh_of(op)) {
      added.made += fresh.nbytes;
      sizes.push_back(fresh.nbytes.count());
    }
    added.kind = kinds.try_emplace({op.name, std::move(sizes)}, kinds.size()).first->second;
    plain_cost_ += op.cost;
  }
}

bool StepTrial::possible(Bytes budget) const {
  return budget - step_.unseen > step_.options.outside;
}

TrialLimits StepTrial::limits() const {
  return {.budget = budget(),
          .most = Nanoseconds(static_cast<std::int64_t>((kMostTimeRatio - 1) *
                                                        static_cast<double>(plain_cost_.count())))};
}

TrialResult StepTrial::run(const StepScore& score, Addresses addresses,
                           const TrialLimits& limits) const {
  Options options = engine_options(step_, limits.budget);
  options.policy = "oracle";
  options.oracle = score.terms;
  options.small_filter.reset();
  options.sampling.reset();
  options.kinetic.reset();
  if (addresses == Addresses::kIgnored) {
    options.addresses = Bytes(limits.budget.count() * kAddressRoom);
    options.block_size = Bytes(0);
  }
  return run(options, &score, nullptr, addresses, limits.most);
}

TrialResult StepTrial::run(const EvictionList& list, const TrialLimits& limits) const {
  return run(engine_options(step_, limits.budget), nullptr, &list, Addresses::kRecorded,
             limits.most);
}

TrialResult StepTrial::run(const Options& options, const StepScore* score, const EvictionList* list,
                           Addresses addresses, Nanoseconds most) const {
  Simulator simulator(step_.trace, {.engine = options, .max_time_ratio = kMostTimeRatio}, nullptr);
  Engine& engine = simulator.engine();
  Director director(engine, simulator.future(), score, list, ops_.size(), stop_);
  engine.set_future(&director);
  engine.set_victim_plan(&director);
  simulator.observe(&director);
  if (addresses == Addresses::kRecorded) {
    simulator.begin_in(step_.pool);
  }
  simulator.begin_with_window(step_.window);
  simulator.begin_with_unseen(step_.unseen);
  engine.learn_from(step_.placer, step_.enough);
  simulator.set_most_replay_cost(most);
  const SimulationResult ran = simulator.run();
  TrialResult result;
  result.cost = ran.replay_cost + engine.context().move_cost();
  result.fits = ran.status == SimulationResult::Status::kOk && result.cost <= most;
  result.ops = director.op_count();
  result.replays = director.take_replays();
  result.done = EvictionList(director.take_done());
  result.work = ran.stats.op_count + ran.stats.replays + ran.stats.candidates_visited;
  return result;
}

}  // namespace recoup::detail
