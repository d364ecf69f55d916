// CostNoise: what a busy machine would have measured where an op really costs what its trace says.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/engine/base/cost_memory.h"
#include "recoup/simulate.h"
#include "recoup/trace.h"

namespace recoup::detail {

class CostNoise {
 public:
  // Throws std::invalid_argument when the noise makes no sense.
  CostNoise(const Noise& noise, const Trace& trace);

  // One measurement more of that op of the trace; each is another. Its kind is that of all ops of
  // its name on storages of the same sizes.
  [[nodiscard]] Measurement measure(std::uint32_t op);

 private:
  [[nodiscard]] double uniform();  // in (0, 1)

  const Trace& trace_;
  double spread_;
  std::uint64_t state_;
  std::vector<CostKey> kinds_;  // by op
};

}  // namespace recoup::detail
