// Replayer: makes values resident, in as many tries as necessary.
#pragma once

#include <span>
#include <vector>

#include "csrc/engine/replay/replay.h"
#include "csrc/engine/state/non_recomputables.h"

namespace recoup::detail {

enum class Tries : std::uint8_t { kOne, kAll };  // Note [Other tries] in replay.h

struct Effort {
  Tries tries = Tries::kAll;
  Nanoseconds most = Nanoseconds::max();  // bound on the cost of the ops of one try
};

class Replayer {
 public:
  // All arguments must outlive this object.
  Replayer(const Replay::Parts& parts, NonRecomputables& non_recomputables)
      : parts_(parts), non_recomputables_(non_recomputables) {}

  // Makes the values resident by replays and fetches, and pins each once, in place. All or nothing.
  // Throws OutOfBudget, and what kernels throw.
  // Values::release ends one of these pins.
  void acquire(std::span<const ValueId> values, const Effort& effort = {});
  // Pins them for as long as the handles exist.
  [[nodiscard]] std::vector<Values::Hold> hold(std::span<const ValueId> values,
                                               const Effort& effort = {});
  [[nodiscard]] Values::Hold hold(ValueId id) {
    acquire({&id, 1});
    return {parts_.values, id};
  }

 private:
  void bring_back(std::span<const ValueId> values, const Effort& effort);
  void replay(std::span<const ValueId> values, const Effort& effort,
              std::vector<ValueId>& dead_sources);

  Replay::Parts parts_;
  NonRecomputables& non_recomputables_;
};

}  // namespace recoup::detail
