// CopyLoad: the share of the time of copies that the program waits for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/engine/base/tier.h"
#include "recoup/stats.h"

namespace recoup::detail {

// Note [The price of a copy]
// A copy that ops hide costs the program little: it slows down the ops. How much of the copies is
// hidden depends on how busy the tier is, which no copy's size tells. So in a known step the price
// of a copy is its time multiplied by a share: of the time of all copies in earlier steps, the part
// that the program waited for. If many copies are hidden, their price falls, so more values are
// spilled instead of replayed, until fewer copies are hidden. The share is at least a quarter:
// a copy that is hidden today delays copies that the step adds tomorrow, and with less, steps with
// few and with many copies took turns. Both times are on the clock of copies, see Note [Async
// copies], so a simulation computes the same share.
class CopyLoad {
 public:
  // From kLeast to 1.
  [[nodiscard]] double waited_part() const { return share_; }

  // A step has ended.
  void end_step(const Stats& stats) {
    const auto time = static_cast<double>(stats.copy_time_ns - copy_time_ns_);
    const auto waited = static_cast<double>(stats.spill_cost_ns - spill_cost_ns_);
    const double now = time > 0 ? std::clamp(waited / time, kLeast, 1.0) : kLeast;
    share_ += kWeight * (now - share_);
    copy_time_ns_ = stats.copy_time_ns;
    spill_cost_ns_ = stats.spill_cost_ns;
  }

 private:
  static constexpr double kLeast = 0.25;
  static constexpr double kWeight = 0.5;  // of the last step in the average over steps

  double share_ = 1;
  std::int64_t copy_time_ns_ = 0;  // until the end of the last step
  std::int64_t spill_cost_ns_ = 0;
};

}  // namespace recoup::detail
