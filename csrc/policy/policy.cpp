#include "recoup/policy.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace recoup {
namespace {

// Forwards every call and records the ids of the candidates that the policy looked at. Victims must
// be among them, so checking a plan costs no more than finding it. Visits are counted in one place.
class WatchedView final : public PolicyView {
 public:
  explicit WatchedView(const PolicyView& view) : view_(view) { visited_.reserve(256); }

  [[nodiscard]] std::size_t candidate_count() const override { return view_.candidate_count(); }
  [[nodiscard]] Candidate candidate(std::size_t index) const override {
    const Candidate candidate = view_.candidate(index);
    visited_.push_back(candidate.id);
    return candidate;
  }
  [[nodiscard]] Bytes mean_candidate_size() const override { return view_.mean_candidate_size(); }
  [[nodiscard]] Nanoseconds neighborhood_cost(ValueId id, Neighborhood kind) const override {
    return view_.neighborhood_cost(id, kind);
  }
  [[nodiscard]] Tick now() const override { return view_.now(); }
  [[nodiscard]] std::span<const PoolBlock> blocks() const override { return view_.blocks(); }
  [[nodiscard]] std::span<const std::uint32_t> inputs(std::size_t index) const override {
    return view_.inputs(index);
  }
  [[nodiscard]] std::span<const ValueId> changes() const override { return view_.changes(); }
  [[nodiscard]] std::optional<std::size_t> index_of(ValueId id) const override {
    return view_.index_of(id);
  }

  [[nodiscard]] const std::vector<ValueId>& visited() const { return visited_; }

 private:
  const PolicyView& view_;
  mutable std::vector<ValueId> visited_;
};

}  // namespace

Victims EvictionPolicy::plan(const PolicyView& view, const RoomRequest& request) {
  const WatchedView watched(view);
  Victims plan = do_plan(watched, request);
  ++work_.plans;
  work_.visited += static_cast<std::int64_t>(watched.visited().size());

  RECOUP_CHECK(!plan.victims.empty() || view.candidate_count() == 0, name(),
               " found no victim among ", view.candidate_count(), " candidates");
  std::vector<ValueId> unknown = plan.victims;
  std::sort(unknown.begin(), unknown.end());
  const auto twice = std::adjacent_find(unknown.begin(), unknown.end());
  RECOUP_CHECK(twice == unknown.end(), name(), " named value ", twice->index(), " twice");
  for (auto id = watched.visited().begin(); id != watched.visited().end() && !unknown.empty();
       ++id) {
    const auto known = std::lower_bound(unknown.begin(), unknown.end(), *id);
    if (known != unknown.end() && *known == *id) {
      unknown.erase(known);
    }
  }
  RECOUP_CHECK(unknown.empty(), name(), " named value ", unknown.front().index(),
               ", which is none of the candidates it looked at");
  return plan;
}

}  // namespace recoup
