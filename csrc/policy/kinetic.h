// The candidates of a score cost / (size * staleness), or over the root of staleness, kept in the
// order of the least that they may cost. Each plan only the ones that changed are looked at again.
#pragma once

#include <optional>

#include "csrc/policy/tournament.h"
#include "recoup/policy.h"

namespace recoup::detail {

class KineticOrder {
 public:
  // Takes what changed since the last plan. Returns how many contenders were looked at, besides
  // those that the view counts.
  std::int64_t update(const PolicyView& view, std::optional<Neighborhood> kind, bool root);
  // As of the last update: no contender's cost is above its true one.
  [[nodiscard]] const Tournament& tournament() const { return tournament_; }
  // The candidate's score if it costs what the contender does, but for rounding.
  [[nodiscard]] double score(const Contender& contender, Tick now) const;
  // What the view says of a contender.
  static Candidate look_at(const PolicyView& view, const Contender& contender);
  // The view knows better by now what it costs at least. Winners change with the next update.
  void learn(const PolicyView& view, const Contender& contender);

 private:
  void enter(const Candidate& candidate);

  Tournament tournament_;
  std::optional<Neighborhood> kind_;
  bool root_ = false;  // then contenders have the square of the score, which falls as 1 / staleness
};

}  // namespace recoup::detail
