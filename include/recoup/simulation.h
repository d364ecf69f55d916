// Options and result of a simulation: a run of the engine of live runs on a device without memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recoup/options.h"
#include "recoup/stats.h"
#include "recoup/types.h"

namespace recoup {

// Simulated measurement noise. A measurement is the cost of the op times e^x, where x has a normal
// distribution with mean 0 and this standard deviation. With 30 %, one in 6 measurements is above
// 1.35 times the cost, and one in 6 below 0.74 times.
struct Noise {
  std::uint64_t seed = 0;  // seed of the random numbers
  double percent = 0;      // standard deviation in percent, from 0 to 200
};

// Options of a simulation.
struct SimulationOptions {
  Options engine;  // options of the simulated engine
  // Limit for the cost of ops and replays, as a multiple of the cost of ops: beyond it the run ends
  // as too slow. 0: no limit.
  double max_time_ratio = 10.0;
  // For policies that plan steps. True: the first step already has a plan, made from the same step
  // in an earlier run. False: as in a live run, a step has a plan only after an equal step has
  // ended. Unset: true if the trace has exactly one step.
  std::optional<bool> plan_ahead = std::nullopt;
  // Noise of the engine's measurements, on which its decisions then depend. The costs in the result
  // are those of the trace. Only with CostModel::kMeasured.
  std::optional<Noise> noise = std::nullopt;
};

// Outcome of a simulation.
struct SimulationResult {
  // How the run ended.
  enum class Status : std::uint8_t {
    kOk,           // it ran to its end
    kOutOfBudget,  // an op did not fit in the budget; see `reason`
    kTooSlow,      // it exceeded SimulationOptions::max_time_ratio
  };
  Status status = Status::kOk;  // how the run ended
  std::string reason;           // which op did not fit, and why; empty otherwise
  Stats stats;                  // counters of the engine
  std::int64_t ops = 0;         // number of the program's ops that ran
  Nanoseconds plain_cost{0};    // cost of these ops
  Nanoseconds replay_cost{0};   // cost of the replays
  Nanoseconds spill_cost{0};    // time that the program waits for copies to and from the spill tier
  // Cost of ops, replays and copies, divided by the cost of ops.
  [[nodiscard]] double time_ratio() const {
    return plain_cost.count() == 0
               ? 1.0
               : static_cast<double>((plain_cost + replay_cost + spill_cost).count()) /
                     static_cast<double>(plain_cost.count());
  }
};

}  // namespace recoup
