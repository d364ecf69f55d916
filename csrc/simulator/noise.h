// CostNoise: simulates measurements of ops on a busy machine. The actual costs are those of a
// trace.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/engine/base/cost_memory.h"
#include "recoup/simulation.h"
#include "recoup/trace.h"

namespace recoup::detail {

class CostNoise {
 public:
  // Throws std::invalid_argument if the noise is out of range.
  CostNoise(const Noise& noise, const Trace& trace);

  // A new measurement of an op of the trace. Ops of the same name on storages of the same sizes
  // have the same cost key.
  [[nodiscard]] Measurement measure(std::uint32_t op);

 private:
  [[nodiscard]] double uniform();  // in (0, 1)

  const Trace& trace_;
  double spread_;
  std::uint64_t state_;
  std::vector<CostKey> kinds_;  // by op
};

}  // namespace recoup::detail
