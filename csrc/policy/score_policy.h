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
            .copies = looks_at_copies(),
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

  // A candidate, what it costs to get it back, and its rank; or the least that these may be.
  struct Bound {
    Rank rank;
    double cost;
    const Candidate* candidate;
  };

  EvictionPlan do_plan(const PolicyView& view, const RoomRequest& request) final;
  EvictionPlan plan_in_order(const PolicyView& view);
  std::optional<Rank> first_in_order(const PolicyView& view, Bytes smallest);
  [[nodiscard]] EvictionPlan plan_for(const Bound& first) const {
    return {.victims = {first.rank.id}, .by = get_back(*first.candidate, first.cost)};
  }
  Bound bound(const Candidate& candidate, Nanoseconds around, Tick now);
  Rank rank(const Candidate& candidate, double cost, Tick now);

  // The evicted values whose cost is added to a candidate's own; none: its own cost only.
  [[nodiscard]] virtual std::optional<Neighborhood> neighborhood() const noexcept { return {}; }

  [[nodiscard]] virtual bool looks_ahead() const noexcept { return false; }
  // Whether Candidate::priority comes before the score.
  [[nodiscard]] virtual bool has_priorities() const noexcept { return false; }
  // Whether the score asks for Candidate::free_around.
  [[nodiscard]] virtual bool looks_around() const noexcept { return false; }

  // Whether Candidate::copy_cost is asked for.
  [[nodiscard]] virtual bool looks_at_copies() const noexcept { return false; }

  [[nodiscard]] virtual bool ages_by_root() const noexcept { return false; }

  // How a victim is got back, whose cost is as in score(). Not asked with PolicyInfo::has_order.
  [[nodiscard]] virtual GetBack get_back(const Candidate& /*victim*/, double /*cost*/) const {
    return GetBack::kCheapest;
  }

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
