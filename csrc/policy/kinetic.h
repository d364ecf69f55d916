// The candidates of a score cost / (size * staleness), kept in the order of the least that they may
// cost. Each plan only the ones that changed are looked at again.
#pragma once

#include <optional>
#include <vector>

#include "csrc/policy/tournament.h"
#include "recoup/policy.h"

namespace recoup::detail {

class KineticOrder {
 public:
  // Takes what changed since the last plan. Returns how many contenders were looked at, besides
  // those that the view counts.
  std::int64_t update(const PolicyView& view, std::optional<Neighborhood> kind);
  // As of the last update: no contender's cost is above its true one.
  [[nodiscard]] const Tournament& tournament() const { return tournament_; }
  // What the view says of a contender.
  static Candidate look_at(const PolicyView& view, const Contender& contender);
  // What its neighborhood costs now. The tournament keeps its winners until the next update.
  void learn(const PolicyView& view, const Candidate& candidate, Nanoseconds around);

 private:
  // A component of union-find may be next to every candidate, and what returns there makes all of
  // them cheaper by as much. So each is entered with less than it costs, its slack, and has to be
  // looked at again only when more than that has returned. Those near the front are looked at in
  // vain for it, so theirs is made small.
  struct Slack {
    Nanoseconds good_until{-1};  // of PolicyView::returned_cost()
    std::uint8_t shift = 1;      // its part of the neighborhood's cost is 1 / 2^shift
  };
  struct Expiry {
    Nanoseconds at;
    ValueId id;
    bool operator<(const Expiry& other) const { return other.at < at; }  // first of a heap: least
  };

  void enter(const PolicyView& view, const Candidate& candidate);
  void drop_outdated();
  Nanoseconds less_slack(Nanoseconds around, ValueId id, Nanoseconds returned);

  Tournament tournament_;
  std::optional<Neighborhood> kind_;
  std::vector<Slack> slacks_;  // by index of the value
  std::vector<Expiry> expiries_;
};

}  // namespace recoup::detail
