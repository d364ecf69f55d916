// PlanRecord: a plan of a step in the form of traces.
#pragma once

#include <vector>

#include "csrc/steps/evict/planner.h"
#include "recoup/trace.h"

namespace recoup::detail {

class PlanRecord {
 public:
  explicit PlanRecord(const StepEvictions& plan);
  // Valid as long as this object.
  [[nodiscard]] TracePlanLists lists() const {
    return {.evictions = evictions_, .blocks = blocks_, .starts = starts_};
  }
  // The plan, whose steps are expected to cost that much.
  [[nodiscard]] static StepEvictions read(const TracePlanLists& lists, Nanoseconds expected);

 private:
  std::vector<TraceEviction> evictions_;
  std::vector<TraceBlock> blocks_;
  std::vector<TraceStart> starts_;
};

}  // namespace recoup::detail
