#include "csrc/engine/state/candidates.h"

#include "csrc/base/check.h"

namespace recoup::detail {

Candidates::Candidates(const PolicyNeeds& needs, const Pool& pool, Lineage& lineage,
                       const Prices& prices, const Tick& now)
    : needs_(needs),
      pool_(pool),
      lineage_(lineage),
      prices_(prices.moves),
      tier_(prices.tier),
      now_(now) {
  if (needs_.changes && needs_.equivalence) {
    sets_.start_watching();
  }
}

void Candidates::change(ValueId id) {
  touch(id);
  Value& value = lineage_[id];
  if (value.candidate_index == Value::kNotCandidate) {
    value.candidate_index = static_cast<std::uint32_t>(list_.size());
    list_.push_back(id);
    bytes_ += value.size;
  } else {
    const ValueId last = list_.back();
    list_[value.candidate_index] = last;
    lineage_[last].candidate_index = value.candidate_index;
    list_.pop_back();
    value.candidate_index = Value::kNotCandidate;
    bytes_ -= value.size;
  }
}

void Candidates::before_transition(ValueId id, const Value& value, Residency to) {
  if (needs_.walks && value.evicted()) {
    changes_.on_return(id, needs_.walks == Neighborhood::kExact);
  } else if (needs_.walks && to == Residency::kLost) {
    changes_.on_lost(id);
  }
}

void Candidates::after_transition(ValueId id, Residency to) {
  if (!needs_.equivalence) {
    return;
  }
  if (to == Residency::kEvicted) {
    sets_.on_evict(lineage_, id);
  } else {
    sets_.on_return(lineage_, id);
  }
}

void Candidates::before_non_recomputable(ValueId id) {
  if (needs_.equivalence) {
    sets_.on_return(lineage_, id);
  }
}

void Candidates::before_cut(ValueId id) {
  if (needs_.walks) {
    changes_.on_cut(lineage_, id);
  }
}

Candidate Candidates::candidate(std::size_t index) const {
  const ValueId id = list_[index];
  const Value& value = lineage_[id];
  const bool source = !value.recomputable();  // only its own cost counts then
  return {
      .id = id,
      .size = value.size,
      .offset = pool_.offset(value.block),
      .own_cost = own_cost(value),
      .last_access = value.last_access,
      .equivalence_at_least = source           ? Nanoseconds{}
                              : needs_.changes ? sets_.watches().at_least(id)
                                               : sets_.cost_at_least(value),
      .walked_at_least = needs_.walks && !source ? changes_.at_least(id) : Nanoseconds{},
      .until_use = needs_.future ? until_use(id) : Nanoseconds{},
      .copy_cost = needs_.copies ? copy_cost(value) : Candidate::kNever,
      .free_around = needs_.free_around ? pool_.free_around(value.block) : Bytes(0),
      .recomputes = value.recomputes,
      .priority = needs_.priority && future_ != nullptr ? future_->priority(id) : std::int8_t{0}};
}

// A non-recomputable value must be written now and read when it is used.
Nanoseconds Candidates::own_cost(const Value& value) const {
  return !value.recomputable() ? tier_.absence_cost(value.size, false)
                               : lineage_[value.producer].cost;
}

Nanoseconds Candidates::copy_cost(const Value& value) const {
  const bool takes = value.clean() || (value.spillable && tier_.open());
  return takes ? tier_.absence_cost(value.size, value.clean()) : Candidate::kNever;
}

Bytes Candidates::mean_candidate_size() const {
  return list_.empty() ? Bytes(0) : Bytes(bytes_.count() / static_cast<std::int64_t>(list_.size()));
}

Nanoseconds Candidates::neighborhood_cost(ValueId id, Neighborhood kind) const {
  if (!lineage_[id].recomputable()) {
    return Nanoseconds(0);  // no replay is needed to restore it
  }
  if (kind == Neighborhood::kEquivalence) {
    return sets_.cost(lineage_, id);
  }
  const Nanoseconds cost = kind == Neighborhood::kExact ? exact_neighborhood_cost(lineage_, id)
                                                        : ancestor_cost(lineage_, id);
  if (needs_.walks == kind) {
    changes_.learn(id, cost);
  }
  return cost;
}

std::span<const PoolBlock> Candidates::blocks() const {
  RECOUP_CHECK(needs_.blocks, "the policy did not ask for blocks");
  blocks_.clear();
  for (BlockId id = pool_.first(); id.valid(); id = pool_.next(id)) {
    const BlockView block = pool_.view(id);
    const Value* const value = block.owner.valid() ? &lineage_[block.owner] : nullptr;
    blocks_.push_back({.size = block.size,
                       .candidate = value == nullptr ? PoolBlock::kNone : value->candidate_index,
                       .free = block.free,
                       .starts_segment = pool_.starts_segment(block.offset)});
    if (needs_.moves && value != nullptr && value->movable()) {
      blocks_.back().move_cost = prices_.of(1, block.size);
    }
  }
  return blocks_;
}

std::span<const std::uint32_t> Candidates::inputs(std::size_t index) const {
  RECOUP_CHECK(needs_.inputs, "the policy did not ask for inputs");
  inputs_.clear();
  if (!lineage_[list_[index]].recomputable()) {
    return inputs_;
  }
  lineage_.for_each_input(lineage_[list_[index]].producer, [this](ValueId input) {
    if (const std::uint32_t found = lineage_[input].candidate_index;
        found != Value::kNotCandidate) {
      inputs_.push_back(found);
    }
  });
  return inputs_;
}

std::span<const ValueId> Candidates::changes() const {
  RECOUP_CHECK(needs_.changes, "the policy did not ask for changes");
  for (ValueId id : sets_.watches().take_notified()) {
    if (index_of(id)) {
      changes_.on_change(id);
    }
  }
  return changes_.collect(lineage_);
}

std::optional<std::size_t> Candidates::index_of(ValueId id) const {
  if (!lineage_.contains(id) || lineage_[id].candidate_index == Value::kNotCandidate) {
    return std::nullopt;
  }
  return lineage_[id].candidate_index;
}

Nanoseconds Candidates::until_use(ValueId id) const {
  RECOUP_CHECK(future_ != nullptr, "the policy looks ahead, and no future is known");
  return soonest_use(lineage_, id, [this](const Value& value) {
    return value.storage.valid() ? future_->until_use(value.storage) : Candidate::kNever;
  });
}

void Candidates::check() const {
  std::size_t count = 0;
  Bytes bytes{0};
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    const bool listed = value.candidate_index != Value::kNotCandidate;
    RECOUP_CHECK(is_one(value) == listed, "value ", id.index());
    if (listed) {
      ++count;
      bytes += value.size;
      RECOUP_CHECK(list_[value.candidate_index] == id);
    }
  });
  RECOUP_CHECK(count == list_.size() && bytes == bytes_);
}

}  // namespace recoup::detail
