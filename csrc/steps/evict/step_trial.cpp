#include "csrc/steps/evict/step_trial.h"

#include <map>
#include <string>
#include <utility>

#include "csrc/simulator/simulator.h"
#include "csrc/steps/evict/block_follower.h"
#include "csrc/steps/evict/cancelled.h"
#include "csrc/steps/track/step_cost.h"

namespace recoup::detail {
namespace {

constexpr double kMostTimeRatio = 10;  // as in simulations
constexpr std::int64_t kAddressRoom = 256;
constexpr Nanoseconds kNoLimit{std::int64_t{1} << 50};

// Observes one simulated run of a step, and tells its engine what to evict.
class Director final : public Observer, public VictimPlan, public Future {
 public:
  struct Orders {
    const StepScore* score = nullptr;
    const EvictionList* list = nullptr;
    const BlockPlan* plan = nullptr;
    TrialBlocks* blocks = nullptr;
    const std::atomic<bool>* stop = nullptr;
  };
  Director(const Engine& engine, const Future* future, const Orders& orders, std::size_t ops)
      : engine_(engine), log_(engine), future_(future), orders_(orders), replays_(ops) {}

  // VictimPlan.
  [[nodiscard]] ValueId next() const override {
    return orders_.list == nullptr ? ValueId() : orders_.list->next(log_);
  }
  [[nodiscard]] std::optional<Nanoseconds> moves_next() const override {
    const bool named = orders_.list != nullptr && orders_.list->moves_next(log_, moves_);
    return named ? std::optional(kNoLimit) : std::nullopt;
  }
  void on_room_by_moves() override {
    add_done({.ops = log_.op_count(), .victim = EvictionList::moves(moves_++)});
  }

  [[nodiscard]] bool places() const override {
    return orders_.plan != nullptr || orders_.blocks != nullptr;
  }
  [[nodiscard]] std::optional<PlannedPlace> begin_block(Bytes size) override {
    return orders_.plan == nullptr ? std::nullopt
                                   : follower_.begin_block(*orders_.plan, log_, size);
  }
  [[nodiscard]] ValueId victim_before_block() override {
    return follower_.victim(*orders_.list, log_);
  }
  void end_block(bool as_planned) override {
    if (!as_planned) {
      follower_.count_elsewhere();
    }
  }

  // Future.
  [[nodiscard]] Nanoseconds until_use(StorageId storage) const override {
    return future_->until_use(storage);
  }
  [[nodiscard]] std::int8_t priority(ValueId value) const override {
    if (orders_.score == nullptr || orders_.score->priorities.empty()) {
      return 0;
    }
    const std::optional<Made> made = log_.find(value);
    return made ? orders_.score->priorities[made->op] : std::int8_t{0};
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
    if (orders_.blocks != nullptr) {
      orders_.blocks->log.set_ops(log_.op_count());
    }
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
      add_done({.ops = log_.op_count(), .victim = *made});
    }
  }
  void on_replay(std::string_view /*name*/, OpId /*id*/, const Op& op) override {
    stop_if_asked();
    ++replays_[ops_[op.sequence]];
  }

  [[nodiscard]] std::uint32_t op_count() const { return log_.op_count(); }
  [[nodiscard]] std::uint32_t elsewhere() const { return follower_.elsewhere(); }
  [[nodiscard]] std::optional<Made> maker_in_step(StorageId id) const {
    return log_.maker_in_step(id);
  }
  std::vector<std::uint32_t> take_replays() { return std::move(replays_); }
  std::vector<EvictionList::Entry> take_done() { return std::move(done_); }

 private:
  // As EvictionList, which ignores duplicates.
  void add_done(const EvictionList::Entry& entry) {
    for (std::size_t i = done_.size(); i > 0 && done_[i - 1].ops == entry.ops; --i) {
      if (done_[i - 1] == entry) {
        return;
      }
    }
    done_.push_back(entry);
    if (orders_.blocks != nullptr) {
      orders_.blocks->log.set_evictions(done_.size());
    }
  }
  void stop_if_asked() const {
    if (orders_.stop != nullptr && orders_.stop->load(std::memory_order_relaxed)) {
      throw PlanCancelled();
    }
  }

  const Engine& engine_;
  StepLog log_;
  const Future* future_;
  const Orders orders_;
  BlockFollower follower_;
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

// With these addresses fragmentation does not occur.
Options without_addresses(Options options) {
  options.addresses = Bytes(options.budget.count() * kAddressRoom);
  options.block_size = Bytes(0);
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

Options StepTrial::options_for(const StepScore& score, Bytes budget) const {
  Options options = engine_options(step_, budget);
  options.policy = "oracle";
  options.oracle = score.terms;
  options.small_filter.reset();
  options.sampling.reset();
  options.kinetic.reset();
  return options;
}

TrialResult StepTrial::run(const StepScore& score, Addresses addresses,
                           const TrialLimits& limits) const {
  const bool ignored = addresses == Addresses::kIgnored;
  Options options = options_for(score, limits.budget);
  return run({.options = ignored ? without_addresses(std::move(options)) : std::move(options),
              .pool = ignored ? nullptr : &step_.pool,
              .score = &score,
              .most = limits.most});
}

TrialResult StepTrial::run(const StepScore& score, const TrialLimits& limits,
                           TrialBlocks& blocks) const {
  const StartingPool pool{.blocks = step_.pool.blocks, .others = {}};
  blocks.before.resize(pool.blocks.size());
  std::size_t life = 0;
  for (const bool has_place : {true, false}) {  // in the order in which the simulation allocates
    for (std::size_t k = 0; k < pool.blocks.size(); ++k) {
      if (pool.blocks[k].has_value() == has_place) {
        blocks.before[k] = life++;
      }
    }
  }
  return run({.options = without_addresses(options_for(score, limits.budget)),
              .pool = &pool,
              .score = &score,
              .most = limits.most,
              .blocks = &blocks});
}

TrialResult StepTrial::run(const EvictionList& list, const BlockPlan& plan,
                           const StartingPool& pool) const {
  return run({.options = engine_options(step_, budget()),
              .pool = &pool,
              .list = &list,
              .plan = &plan,
              .most = limits().most});
}

TrialResult StepTrial::run(const EvictionList& list, const TrialLimits& limits) const {
  return run({.options = engine_options(step_, limits.budget),
              .pool = &step_.pool,
              .list = &list,
              .most = limits.most});
}

TrialResult StepTrial::run(const Setup& setup) const {
  Simulator simulator(step_.trace, {.engine = setup.options, .max_time_ratio = kMostTimeRatio},
                      nullptr);
  Engine& engine = simulator.engine();
  Director director(engine, simulator.future(),
                    {.score = setup.score,
                     .list = setup.list,
                     .plan = setup.plan,
                     .blocks = setup.blocks,
                     .stop = stop_},
                    ops_.size());
  engine.set_future(&director);
  engine.set_victim_plan(&director);
  simulator.observe(&director);
  if (setup.blocks != nullptr) {
    engine.set_pool_observer(&setup.blocks->log);
  }
  if (setup.pool != nullptr) {
    simulator.begin_in(*setup.pool);
  }
  simulator.begin_with_window(step_.window);
  simulator.begin_with_unseen(step_.unseen);
  engine.learn_from(step_.placer, step_.enough);
  simulator.set_most_replay_cost(setup.most);
  const SimulationResult ran = simulator.run();
  TrialResult result;
  result.cost = ran.replay_cost + engine.context().move_cost();
  result.fits = ran.status == SimulationResult::Status::kOk && result.cost <= setup.most;
  result.ops = director.op_count();
  result.replays = director.take_replays();
  result.elsewhere = director.elsewhere();
  result.done = EvictionList(director.take_done());
  result.searches = search_price(ran.stats.plans, result.done.moves());
  result.work = ran.stats.op_count + ran.stats.replays + ran.stats.candidates_visited;
  if (setup.blocks != nullptr) {
    engine.set_pool_observer(nullptr);
    for (const BlockLog::Life& life : setup.blocks->log.lives()) {
      const StorageId storage = life.survives() ? engine.storage_in(life.block) : StorageId();
      setup.blocks->makers.push_back(storage.valid() ? director.maker_in_step(storage)
                                                     : std::nullopt);
    }
  }
  return result;
}

}  // namespace recoup::detail
