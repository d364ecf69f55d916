// Simulation: what a run would do under a given policy and budget. It uses the engine of live runs
// on a device without memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recoup/api.h"
#include "recoup/options.h"
#include "recoup/stats.h"
#include "recoup/trace.h"

namespace recoup {

// A decision of an engine.
struct Decision {
  // What can be decided.
  enum class Kind : std::uint8_t {
    kEvict,   // `what`: id of the value
    kReplay,  // `what`: number of the op among all recorded ops
    kMove,    // `what`: id of the value; `where`: its new offset
    kSpill,   // `what`: id of the value
    kFetch,   // `what`: id of the value
  };
  Kind kind = Kind::kEvict;  // what was decided
  std::uint64_t what = 0;    // subject of the decision, as defined by `kind`
  std::int64_t where = 0;    // new offset for kMove, in bytes; otherwise 0
  friend bool operator==(const Decision&, const Decision&) = default;
};

// An event of a simulated run. The clock counts the cost of ops and replays.
struct TimelineRow {
  // What can happen.
  enum class Kind : std::uint8_t { kOp, kReplay, kEvict, kStep };
  Kind kind = Kind::kOp;   // what happened
  std::uint32_t name = 0;  // of an op, a replay or a step: index into Trace::names
  Nanoseconds start{0};    // start time
  Nanoseconds cost{0};     // cost
  Bytes charged{0};        // bytes charged right after the event
};

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

// Runs the trace. Appends the engine's decisions to `decisions` unless it is null. Throws BadTrace
// for an invalid trace and std::invalid_argument for invalid options. A run that does not fit is a
// result, not an exception.
RECOUP_API SimulationResult simulate(const Trace& trace, const SimulationOptions& options,
                                     std::vector<Decision>* decisions = nullptr);

// The events of the same run, up to where it ends. Throws as simulate() does.
RECOUP_API std::vector<TimelineRow> timeline(const Trace& trace, const SimulationOptions& options);

// Peak of the bytes that the program holds, with block sizes rounded up as in the pool: the least
// budget in which nothing must be evicted, apart from fragmentation.
RECOUP_API Bytes unbudgeted_peak(const Trace& trace, const Options& options);

}  // namespace recoup
