// Candidates: the values that a policy may choose from, and their properties as the policy sees
// them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "csrc/engine/base/future.h"
#include "csrc/engine/base/move_price.h"
#include "csrc/engine/base/tier.h"
#include "csrc/lineage/changes.h"
#include "csrc/lineage/lineage.h"
#include "csrc/lineage/neighborhood.h"
#include "csrc/pool/pool.h"
#include "recoup/policy.h"

namespace recoup::detail {

class Candidates final : public PolicyView {
 public:
  // Whether a value is a candidate.
  [[nodiscard]] static bool is_one(const Value& value) {
    return value.evictable() && value.soft_pins == 0;
  }

  // `now` is the engine's clock. All references must outlive this object.
  struct Prices {
    const MovePrice& moves;
    const Tier& tier;
  };
  Candidates(const PolicyNeeds& needs, const Pool& pool, Lineage& lineage, const Prices& prices,
             const Tick& now);

  // ---- changes of values, reported by the engine ----
  // The pins, the bytes or the producer of the value have changed.
  void update(ValueId id) { update(id, lineage_[id]); }
  void update(ValueId id, const Value& value) {
    if ((value.candidate_index != Value::kNotCandidate) != is_one(value)) {
      change(id);
    }
  }
  // The value has gained or lost its producer, so its cost has changed, too.
  void update_cost(ValueId id) {
    update(id);
    touch(id);
  }
  // The value was read, or its cost has changed.
  void touch(ValueId id) {
    if (needs_.changes) {
      changes_.on_change(id);
    }
  }
  // Called right before and right after a change of residency.
  void before_transition(ValueId id, const Value& value, Residency to);
  void after_transition(ValueId id, Residency to);
  // before_cut: the value is about to be cut from its producer. before_non_recomputable: the same,
  // and its record stays.
  void before_non_recomputable(ValueId id);
  void before_cut(ValueId id);

  // ---- queries ----
  [[nodiscard]] const PolicyNeeds& needs() const { return needs_; }
  [[nodiscard]] const std::vector<ValueId>& list() const { return list_; }
  [[nodiscard]] std::size_t memory() const { return sets_.memory(); }
  // For policies that look ahead. `future` must outlive this object or be reset to null.
  void set_future(const Future* future) { future_ = future; }

  // ---- PolicyView ----
  [[nodiscard]] std::size_t candidate_count() const override { return list_.size(); }
  [[nodiscard]] Candidate candidate(std::size_t index) const override;
  [[nodiscard]] Bytes mean_candidate_size() const override;
  [[nodiscard]] Nanoseconds neighborhood_cost(ValueId id, Neighborhood kind) const override;
  [[nodiscard]] Tick now() const override { return now_; }
  [[nodiscard]] std::span<const PoolBlock> blocks() const override;
  [[nodiscard]] std::span<const std::uint32_t> inputs(std::size_t index) const override;
  [[nodiscard]] std::span<const ValueId> changes() const override;
  [[nodiscard]] std::optional<std::size_t> index_of(ValueId id) const override;

  void check() const;

 private:
  void change(ValueId id);  // toggles whether the value is listed
  [[nodiscard]] Nanoseconds until_use(ValueId id) const;
  [[nodiscard]] Nanoseconds own_cost(const Value& value) const;
  [[nodiscard]] Nanoseconds copy_cost(const Value& value) const;

  const PolicyNeeds needs_;
  const Pool& pool_;
  Lineage& lineage_;
  const MovePrice& prices_;
  const Tier& tier_;
  const Tick& now_;
  const Future* future_ = nullptr;

  std::vector<ValueId> list_;  // Value::candidate_index is the index in it
  Bytes bytes_{0};
  mutable EquivalenceSets sets_;           // maintained only if the policy needs them
  mutable ChangeLog changes_;              // maintained only if the policy needs it
  mutable std::vector<PoolBlock> blocks_;  // of the running plan; a member to reuse its capacity
  mutable std::vector<std::uint32_t> inputs_;  // the same
};

}  // namespace recoup::detail
