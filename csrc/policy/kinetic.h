// KineticOrder: candidates in the order of a lower bound of their score, where the score is cost /
// (size * staleness) or cost / (size * sqrt(staleness)). Each plan looks only at candidates that
// changed.
#pragma once

#include <optional>

#include "csrc/policy/tournament.h"
#include "recoup/policy.h"

namespace recoup::detail {

class KineticOrder {
 public:
  // Applies the changes since the last plan. Returns the number of contenders that were looked at,
  // in addition to those that the view counts.
  std::int64_t update(const PolicyView& view, std::optional<Neighborhood> kind, bool root);
  // The order as of the last update. The cost of a contender is a lower bound of the candidate's
  // cost.
  [[nodiscard]] const Tournament& tournament() const { return tournament_; }
  // The candidate's score if its cost is that of the contender, apart from rounding.
  [[nodiscard]] double score(const Contender& contender, Tick now) const;
  // The candidate that a contender stands for.
  static Candidate look_at(const PolicyView& view, const Contender& contender);
  // Takes over a higher lower bound from the view. Winners change with the next update.
  void learn(const PolicyView& view, const Contender& contender);

 private:
  void enter(const Candidate& candidate);

  Tournament tournament_;
  std::optional<Neighborhood> kind_;
  // Contenders then have the square of the score, which is proportional to 1 / staleness.
  bool root_ = false;
};

}  // namespace recoup::detail
