// Runs of traces: what a recorded program would do under a given policy and budget.
#pragma once

#include <cstdint>
#include <vector>

#include "recoup/api.h"
#include "recoup/decision.h"
#include "recoup/options.h"
#include "recoup/simulation.h"
#include "recoup/trace.h"

namespace recoup {

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
