#include "recoup/offline/traces.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/engine/base/decisions.h"
#include "csrc/offline/traces/timeline.h"
#include "csrc/simulator/simulator.h"
#include "csrc/steps/evict/foresight.h"
#include "csrc/steps/prefetch/next_use_predictor.h"

namespace recoup {
namespace {

// The number of steps: marks with an op before them, and the ops after the last mark, if any.
int step_count(const Trace& trace) {
  int steps = 0;
  bool has_ops = false;
  for (const TraceEvent& event : trace.events) {
    has_ops |= event.kind == TraceEvent::Kind::kOp;
    if (event.kind == TraceEvent::Kind::kStep) {
      steps += std::exchange(has_ops, false) ? 1 : 0;
    }
  }
  return steps + (has_ops ? 1 : 0);
}

// The options with alignment, outside bytes and budget unit of the device of the recorded run.
SimulationOptions on_device(const Trace& trace, SimulationOptions options) {
  const TraceDevice& device = trace.device;
  Options& engine = options.engine;
  engine.alignment = device.alignment;
  engine.outside = device.outside;
  engine.budget = Bytes(engine.budget.count() / device.unit.count() * device.unit.count());
  engine.spill_compares = engine.spill_compares && device.compares;
  return options;
}

// Returns why the device cannot have a pool within the budget, or an empty string if it can.
std::string no_pool(const Options& asked, const Options& on_device) {
  if (asked.budget <= Bytes(0) || on_device.budget > on_device.outside) {
    return {};  // simulate() rejects a budget that is not positive
  }
  return detail::str_cat("the budget leaves no memory: ", to_string(on_device.outside),
                         " were in use on the device before the recorded run");
}

// Whether to follow plans that a live run recorded for this budget. Noise, or an explicit choice
// about planning ahead, rules them out.
bool has_plans(const Trace& trace, const SimulationOptions& options) {
  return !options.plan_ahead && !options.noise &&
         std::any_of(trace.plans.begin(), trace.plans.end(),
                     [&](const TracePlan& plan) { return plan.budget == options.engine.budget; });
}

bool plans_ahead(const Trace& trace, const SimulationOptions& options) {
  return options.plan_ahead.value_or(step_count(trace) == 1);
}

void plan_ahead(const Trace& trace, const SimulationOptions& options,
                detail::Simulator& simulator) {
  if (find_policy(options.engine.policy).schedule == ScheduleKind::kNone ||
      !plans_ahead(trace, options)) {
    return;
  }
  SimulationOptions plain = options;
  plain.engine.budget = detail::kUnbounded;
  detail::Simulator recording(trace, plain, nullptr, options.engine.budget);
  (void)recording.run();
  simulator.set_plans(recording.take_plans());
}

// A simulator with the next-use predictor, or the foresight, that its policy requires.
class Simulation {
 public:
  // `observer` may be null.
  Simulation(const Trace& trace, const SimulationOptions& options, detail::Observer* observer)
      : simulator_(trace, options, observer) {
    const bool recorded = has_plans(trace, options);
    if (detail::has_next_use_predictor(options.engine)) {
      next_use_predictor_.emplace(simulator_.engine());
      simulator_.engine().set_forecast(&*next_use_predictor_);
    }
    if (detail::has_foresight(options.engine)) {
      foresight_.emplace(simulator_.engine(), detail::Foresight::Settings{.recorded = recorded});
      simulator_.engine().set_victim_plan(&*foresight_);
    }
    steps_ = {next_use_predictor_ ? &*next_use_predictor_ : nullptr,
              foresight_ ? &*foresight_ : nullptr};
    if (next_use_predictor_ || foresight_) {
      simulator_.observe(&steps_, observer);
    }
    plan_ahead(trace, options, simulator_);
    if (foresight_ && !recorded && plans_ahead(trace, options)) {
      detail::Simulator first(trace, options, nullptr);
      detail::Foresight known(first.engine(), {.at_once = true});
      first.engine().set_victim_plan(&known);
      first.observe(&known);
      (void)first.run();
      foresight_->set_known(known.take_known());
    }
  }
  [[nodiscard]] const detail::Engine& engine() const { return simulator_.engine(); }
  SimulationResult run() { return simulator_.run(); }

 private:
  detail::Simulator simulator_;
  std::optional<detail::Foresight> foresight_;
  std::optional<detail::NextUsePredictor> next_use_predictor_;
  detail::Observers steps_;
};

// The smallest budget on the device in which `peak` bytes fit, where `peak` includes the bounce
// buffer of `options`.
Bytes budget_for(Bytes peak, const TraceDevice& device, Options options) {
  const Bytes held =
      peak -
      (device.bounces ? detail::bounce_size(options, options.budget - options.outside) : Bytes(0));
  options.budget = held;
  // The bounce buffer grows with the budget: each round adds 1/256 of what the previous one added.
  while (device.bounces &&
         held + detail::bounce_size(options, options.budget - options.outside) > options.budget) {
    options.budget = held + detail::bounce_size(options, options.budget - options.outside);
  }
  const std::int64_t unit = device.unit.count();
  return Bytes((options.budget.count() + unit - 1) / unit * unit);
}

}  // namespace

SimulationResult simulate(const Trace& trace, const SimulationOptions& options,
                          std::vector<Decision>* decisions) {
  validate(trace);
  const SimulationOptions there = on_device(trace, options);
  if (std::string reason = no_pool(options.engine, there.engine); !reason.empty()) {
    SimulationResult result;
    result.status = SimulationResult::Status::kOutOfBudget;
    result.reason = std::move(reason);
    return result;
  }
  detail::DecisionLog log;
  SimulationResult result = Simulation(trace, there, decisions == nullptr ? nullptr : &log).run();
  if (decisions != nullptr) {
    decisions->insert(decisions->end(), log.decisions().begin(), log.decisions().end());
  }
  return result;
}

std::vector<TimelineRow> timeline(const Trace& trace, const SimulationOptions& options) {
  validate(trace);
  const SimulationOptions there = on_device(trace, options);
  if (!no_pool(options.engine, there.engine).empty()) {
    return {};
  }
  detail::TimelineLog log(trace);
  Simulation simulation(trace, there, &log);
  log.look_at(simulation.engine());
  (void)simulation.run();
  return log.take();
}

Bytes unbudgeted_peak(const Trace& trace, const Options& options) {
  SimulationOptions unreached{.engine = options, .max_time_ratio = 0};
  unreached.engine.policy = "unbounded";
  unreached.engine.budget = detail::kUnbounded;
  const Bytes peak(simulate(trace, unreached).stats.peak_bytes);
  return budget_for(peak, trace.device, on_device(trace, unreached).engine);
}

}  // namespace recoup
