// ScorePolicy: evicts the candidate with the lowest score. A plan has one victim, because every
// eviction changes the scores of other candidates (DTR, section 2).
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
  // A candidate's rank in the order of eviction. Of equal scores the larger value is evicted first,
  // which may save the next eviction, then the lower id. This is a total order, so the order of
  // visits does not matter.
  struct Rank {
    std::int8_t priority;
    double score;
    Bytes size;
    ValueId id;
    bool operator<(const Rank& other) const;
  };

  // A candidate with its cost to restore and its rank, or with lower bounds of these.
  struct Bound {
    Rank rank;
    double cost;
    const Candidate* candidate;
  };

  Victims do_plan(const PolicyView& view, const RoomRequest& request) final;
  Victims plan_in_order(const PolicyView& view);
  std::optional<Rank> first_in_order(const PolicyView& view, Bytes smallest);
  [[nodiscard]] Victims plan_for(const Bound& first) const {
    return {.victims = {first.rank.id}, .by = get_back(*first.candidate, first.cost)};
  }
  Bound bound(const Candidate& candidate, Nanoseconds around, Tick now);
  Rank rank(const Candidate& candidate, double cost, Tick now);

  // The evicted values whose cost is added to a candidate's own cost; nullopt: none.
  [[nodiscard]] virtual std::optional<Neighborhood> neighborhood() const noexcept { return {}; }

  [[nodiscard]] virtual bool looks_ahead() const noexcept { return false; }
  // Whether Candidate::priority takes precedence over the score.
  [[nodiscard]] virtual bool has_priorities() const noexcept { return false; }
  // Whether the score uses Candidate::free_around.
  [[nodiscard]] virtual bool looks_around() const noexcept { return false; }

  // Whether Candidate::copy_cost is used.
  [[nodiscard]] virtual bool looks_at_copies() const noexcept { return false; }

  [[nodiscard]] virtual bool ages_by_root() const noexcept { return false; }

  // How to restore a victim whose cost is as in score(). Not called if PolicyInfo::has_order is
  // set.
  [[nodiscard]] virtual GetBack get_back(const Candidate& /*victim*/, double /*cost*/) const {
    return GetBack::kCheapest;
  }

  // `cost`: nanoseconds to restore the candidate. The result must not be NaN; infinity is allowed.
  // If there is a neighborhood(), the score must not fall when only the cost rises. If
  // PolicyInfo::has_order is set, the score is h_dtr(), or with sqrt(staleness) if ages_by_root().
  virtual double score(const Candidate& candidate, double cost, Tick now) = 0;

  Search search_;
  std::vector<Bound> bounds_;  // of the running plan; kept to reuse its memory
  bool kinetic_;
  bool small_filter_;
  KineticOrder order_;
  std::vector<Tournament::Node> front_;
};

}  // namespace recoup::detail
