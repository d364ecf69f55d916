#include "csrc/steps/trial/step_trial.h"

#include <map>
#include <string>
#include <utility>

#include "csrc/simulator/simulator.h"
#include "csrc/steps/follow/planned_writes.h"
#include "csrc/steps/track/step_cost.h"
#include "csrc/steps/trial/director.h"

namespace recoup::detail {
namespace {

constexpr double kMostTimeRatio = 10;  // as in simulations
constexpr std::int64_t kAddressRoom = 256;
// The part of a copy at the border of two runs that the program is expected to wait for.
constexpr double kHiddenNot = 0.5;

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

void set_before(const StartingPool& pool, TrialBlocks& blocks) {
  blocks.before.assign(pool.blocks.size(), TrialBlocks::kNone);
  std::size_t life = 0;
  for (const bool has_place : {true, false}) {  // in the order in which the simulation allocates
    for (std::size_t k = 0; k < pool.blocks.size(); ++k) {
      if (!pool.tier.is_spilled(k) && pool.blocks[k].has_value() == has_place) {
        blocks.before[k] = life++;
      }
    }
  }
}

}  // namespace

StepTrial::StepTrial(const RecordedStep& step, const std::atomic<bool>* stop)
    : step_(step), stop_(stop), uses_(step) {
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
  options.oracle.copies = has_tier() ? score.waited_part.value_or(step_.waited_part) : 0;
  options.small_filter.reset();
  options.sampling.reset();
  options.kinetic.reset();
  return options;
}

TrialResult StepTrial::run(const StepScore& score, Addresses addresses,
                           const TrialLimits& limits) const {
  const bool ignored = addresses == Addresses::kIgnored;
  Options options = options_for(score, limits.budget);
  StartingPool pool = ignored ? StartingPool() : step_.pool;
  pool.tier = score.tier.value_or(step_.pool.tier);
  return run({.options = ignored ? without_addresses(std::move(options)) : std::move(options),
              .pool = &pool,
              .score = &score,
              .most = limits.most});
}

TrialResult StepTrial::run(const StepScore& score, const TrialLimits& limits,
                           TrialBlocks& blocks) const {
  const StartingPool pool{.blocks = step_.pool.blocks,
                          .tier = score.tier.value_or(step_.pool.tier)};
  set_before(pool, blocks);
  return run({.options = without_addresses(options_for(score, limits.budget)),
              .pool = &pool,
              .score = &score,
              .most = limits.most,
              .blocks = &blocks});
}

TrialResult StepTrial::run(const EvictionList& list, const BlockPlan& plan,
                           const StartingPool& pool, const TrialLimits& limits,
                           TrialBlocks* blocks) const {
  Options options = engine_options(step_, limits.budget);
  if (blocks != nullptr) {
    set_before(pool, *blocks);
  }
  return run({.options = blocks == nullptr ? options : without_addresses(options),
              .pool = &pool,
              .list = &list,
              .plan = &plan,
              .most = limits.most,
              .blocks = blocks});
}

TrialResult StepTrial::run(const EvictionList& list, const TrialLimits& limits) const {
  return run({.options = engine_options(step_, limits.budget),
              .pool = &step_.pool,
              .list = &list,
              .most = limits.most});
}

void StepTrial::take_end(const Engine& engine, const Director& director,
                         TrialResult& result) const {
  result.tier.spilled.resize(step_.blocks.size());
  result.tier.clean.resize(step_.blocks.size());
  for (std::size_t k = 0; k < step_.blocks.size(); ++k) {
    if (const StorageId storage = director.successor(step_.blocks[k]); storage.valid()) {
      const Value& value = engine.value(engine.current(storage));
      result.tier.spilled[k] = value.spilled() && !value.copying;
      result.tier.clean[k] = value.clean() || (value.spilled() && value.copying);
    }
  }
}

// The price of the copies by which the end differs from the start: positive if the next run of the
// step needs more.
Nanoseconds StepTrial::cost_of_closing(const TierContent& start, const TierContent& end,
                                       const Engine& engine) const {
  const Tier& tier = engine.context().tier;
  double cost = 0;
  const auto add = [&](std::size_t k, const TierContent& content, double sign) {
    const Bytes size(step_.blocks[k].kind.size);
    if (content.is_spilled(k) || content.is_clean(k)) {
      cost -= sign * static_cast<double>(tier.write_cost(size).count());
    }
    if (content.is_spilled(k)) {
      cost += sign * static_cast<double>(tier.read_cost(size).count());
    }
  };
  for (std::size_t k = 0; k < step_.blocks.size(); ++k) {
    add(k, start, -1);
    add(k, end, 1);
  }
  return Nanoseconds(static_cast<std::int64_t>(kHiddenNot * cost));
}

TrialResult StepTrial::run(const Setup& setup) const {
  Simulator simulator(step_.trace, {.engine = setup.options, .max_time_ratio = kMostTimeRatio},
                      nullptr);
  Engine& engine = simulator.engine();
  std::optional<PlannedWrites> writes;
  if (has_tier()) {
    writes.emplace(setup.list != nullptr ? *setup.list : setup.score->writes);
  }
  Director director(simulator, uses_,
                    {.step = step_,
                     .score = setup.score,
                     .list = setup.list,
                     .plan = setup.plan,
                     .blocks = setup.blocks,
                     .writes = writes ? &*writes : nullptr,
                     .stop = stop_});
  engine.set_future(&director);
  if (has_tier()) {
    engine.set_forecast(&director.forecast());
  }
  simulator.observe(&director);
  simulator.begin_in(*setup.pool);
  engine.set_victim_plan(&director);
  if (setup.blocks != nullptr) {
    engine.set_pool_observer(&setup.blocks->log);
  }
  simulator.begin_with_window(step_.window);
  simulator.begin_with_unseen(step_.unseen);
  engine.learn_from(step_.placer, step_.enough);
  simulator.set_most_cost(setup.most);
  const SimulationResult ran = simulator.run();
  TrialResult result;
  result.cost = ran.replay_cost + ran.spill_cost + engine.context().move_cost();
  if (has_tier()) {
    take_end(engine, director, result);
    result.closing = cost_of_closing(setup.pool->tier, result.tier, engine);
  }
  result.fits = ran.status == SimulationResult::Status::kOk && result.cost <= setup.most;
  result.ops = director.op_count();
  result.replays = director.take_replays();
  result.elsewhere = director.elsewhere();
  if (setup.blocks != nullptr && setup.plan == nullptr) {
    director.find_early();
  }
  result.done = EvictionList(director.take_done());
  result.searches = search_price(ran.stats.plans, result.done.moves());
  result.work = ran.stats.op_count + ran.stats.replays + ran.stats.candidates_visited;
  if (setup.blocks != nullptr) {
    engine.set_pool_observer(nullptr);
    for (const BlockLog::Life& life : setup.blocks->log.lives()) {
      setup.blocks->kinds.push_back(life.survives() ? director.kind_of(life) : BlockKind());
    }
  }
  return result;
}

}  // namespace recoup::detail
