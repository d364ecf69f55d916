// What a run would do under a policy and a budget: the live runtime's engine on a device with no
// memory.
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

// Something that an engine decided.
struct Decision {
  enum class Kind : std::uint8_t {
    kEvict,   // `what`: the value's id
    kReplay,  // `what`: the op's number among all that were recorded
    kMove,    // `what`: the value's id; `where`: its new offset
    kSpill,   // `what`: the value's id
    kFetch,   // the same
  };
  Kind kind = Kind::kEvict;
  std::uint64_t what = 0;
  std::int64_t where = 0;
  friend bool operator==(const Decision&, const Decision&) = default;
};

// Something that happened in a simulated run, on its clock, which counts the cost of ops and
// replays.
struct TimelineRow {
  enum class Kind : std::uint8_t { kOp, kReplay, kEvict, kStep };
  Kind kind = Kind::kOp;
  std::uint32_t name = 0;  // of an op, a replay or a step: into Trace::names
  Nanoseconds start{0};
  Nanoseconds cost{0};
  Bytes charged{0};  // to the budget, right after it
};

// Of measurements on a busy machine: each is what an op costs, times e^x of a normal x with this
// standard deviation. 30 %: one in 6 is above 1.35 times, one in 6 below 0.74 times.
struct Noise {
  std::uint64_t seed = 0;
  double percent = 0;  // from 0 to 200
};

struct SimulationOptions {
  Options engine;
  // The run ends as too slow when replays have cost more than this many times all plain ops. 0: no
  // bound.
  double max_time_ratio = 10.0;
  // For a policy that knows steps. Yes: the first step has a schedule, or a list, already, made of
  // the same step in an earlier run. No: as live, a step runs without one until one like it has
  // ended. Unset: yes when the trace has one step.
  std::optional<bool> plan_ahead = std::nullopt;
  // The engine measures each op and each replay with noise, and decides on what it makes of that,
  // as live; the costs of the result are the trace's. Only where costs are measured.
  std::optional<Noise> noise = std::nullopt;
};

struct SimulationResult {
  enum class Status : std::uint8_t {
    kOk,
    kOutOfBudget,  // `reason` says in which op and why
    kTooSlow,
  };
  Status status = Status::kOk;
  std::string reason;
  Stats stats;
  std::int64_t ops = 0;        // of the program that ran
  Nanoseconds plain_cost{0};   // of them
  Nanoseconds replay_cost{0};  // of the replays
  Nanoseconds spill_cost{0};   // of the copies to and from the spill tier
  [[nodiscard]] double time_ratio() const {
    return plain_cost.count() == 0
               ? 1.0
               : static_cast<double>((plain_cost + replay_cost + spill_cost).count()) /
                     static_cast<double>(plain_cost.count());
  }
};

// Throws BadTrace for a trace that is not valid, std::invalid_argument for options that make no
// sense; a run that does not fit is a result. With `decisions`, those are appended to it.
RECOUP_API SimulationResult simulate(const Trace& trace, const SimulationOptions& options,
                                     std::vector<Decision>* decisions = nullptr);

// The same run, moment by moment, as far as it goes.
RECOUP_API std::vector<TimelineRow> timeline(const Trace& trace, const SimulationOptions& options);

// The most bytes that the program holds at once, blocks rounded up as the pool does: the least
// budget in which nothing has to be evicted if memory is never in pieces.
RECOUP_API Bytes unbudgeted_peak(const Trace& trace, const Options& options);

}  // namespace recoup
