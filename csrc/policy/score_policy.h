// A policy that is a score: the candidate with the lowest goes first, one a plan, for every
// eviction changes the scores of the others (DTR, section 2).
#pragma once

#include <optional>
#include <vector>

#include "csrc/policy/kinetic.h"
#include "csrc/policy/search.h"
#include "recoup/policy.h"

namespace recoup::detail {

class ScorePolicy : public EvictionPolicy {
 public:
  explicit ScorePolicy(const PolicyOptions& options)
      : search_(options), kinetic_(options.kinetic), small_filter_(options.small_filter) {}

  [[nodiscard]] PolicyNeeds needs() const noexcept final {
    const std::optional<Neighborhood> kind = neighborhood();
    const bool equivalence = kind == Neighborhood::kEquivalence;
    return {.equivalence = equivalence,
            .future = looks_ahead(),
            .priority = has_priorities(),
            .free_around = looks_around(),
            .changes = kinetic_,
            .walks = kinetic_ && !equivalence ? kind : std::nullopt};
  }

 private:
  // A candidate's place in the order of eviction. Of equal scores the larger value goes first,
  // which may save the next eviction, then the lower id: a total order that no order of visits
  // changes.
  struct Rank {
    std::int8_t priority;
    double score;
    Bytes size;
    ValueId id;
    bool operator<(const Rank& other) const;
  };

  // A candidate and the least that it may rank.
  struct Bound {
    Rank rank;
    const Candidate* candidate;
  };

  EvictionPlan do_plan(const PolicyView& view, const RoomRequest& request) final;
  EvictionPlan plan_in_order(const PolicyView& view);
  std::optional<Rank> first_in_order(const PolicyView& view, Bytes smallest);
  Rank rank(const Candidate& candidate, double cost, Tick now);

  // The evicted values whose cost is added to a candidate's own; none: its own cost only.
  [[nodiscard]] virtual std::optional<Neighborhood> neighborhood() const noexcept { return {}; }

  [[nodiscard]] virtual bool looks_ahead() const noexcept { return false; }
  // Whether Candidate::priority comes before the score.
  [[nodiscard]] virtual bool has_priorities() const noexcept { return false; }
  // Whether the score asks for Candidate::free_around.
  [[nodiscard]] virtual bool looks_around() const noexcept { return false; }

  [[nodiscard]] virtual bool ages_by_root() const noexcept { return false; }

  // `cost`: nanoseconds to get the candidate back. Never NaN; infinity is allowed. Where there is a
  // neighborhood() the score must not fall when only the cost rises. With PolicyInfo::has_order it
  // is h_dtr(), or that with the root of staleness if ages_by_root().
  virtual double score(const Candidate& candidate, double cost, Tick now) = 0;

  Search search_;
  std::vector<Bound> bounds_;  // of the running plan; kept for its capacity
  bool kinetic_;
  bool small_filter_;
  KineticOrder order_;
  std::vector<Tournament::Node> front_;
};

}  // namespace recoup::detail
