// Traces of the random networks of step_program.h.
#pragma once

#include <cstdint>

#include "csrc/trace/recorder.h"
#include "csrc/trace/sink.h"
#include "tests/core/support/step_program.h"

namespace recoup::detail {

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
