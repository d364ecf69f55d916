// Traces of the random networks of step_program.h.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {

// Options under which steps of the network repeat in a small budget.
inline Options step_options(Bytes budget, const std::string& policy = "planned") {
  Options options;
  options.policy = policy;
  options.budget = budget;
  options.small_result_bytes = 64_B;
  options.move_ns_per_byte = 0.1;
  return options;
}

// These options with a spill tier of 10 MB/s.
inline Options step_options_with_tier(Bytes budget, Bytes spill) {
  Options options = step_options(budget);
  options.spill = spill;
  options.spill_unit = 64_B;
  options.spill_write_ns_per_byte = 100;
  options.spill_read_ns_per_byte = 100;
  options.spill_request_ns = 1000;
  return options;
}

// The trace of five steps of the network with that seed. `options` must have a budget in which no
// op fails.
inline Trace record_steps(std::uint64_t seed, const Options& options) {
  TraceBuilder builder;
  {
    TraceRecorder recorder(builder);
    StepProgram recorded(seed, options);
    recorded.program().engine().set_observer(&recorder);
    for (int i = 0; i < 5; ++i) {
      recorded.step();
      recorder.on_step("step");
    }
    recorded.program().engine().set_observer(nullptr);
  }
  return builder.take();
}

}  // namespace recoup::detail
