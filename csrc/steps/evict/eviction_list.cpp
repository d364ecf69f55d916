#include "csrc/steps/evict/eviction_list.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace recoup::detail {

EvictionList::EvictionList(std::vector<Entry> entries) {
  std::uint32_t row = 0;  // index of the first entry with the same `ops`
  for (const Entry& entry : entries) {
    RECOUP_CHECK(entries_.empty() || entries_.back().ops <= entry.ops);
    if (entries_.empty() || entries_.back().ops != entry.ops) {
      row = static_cast<std::uint32_t>(entries_.size());
      first_.resize(entry.ops + std::size_t{1}, row);
    }
    if (std::find(entries_.begin() + row, entries_.end(), entry) == entries_.end()) {
      entries_.push_back(entry);
    }
  }
  first_.push_back(static_cast<std::uint32_t>(entries_.size()));
}

std::span<const EvictionList::Entry> EvictionList::at(std::uint32_t ops) const {
  if (ops + std::size_t{1} >= first_.size()) {
    return {};
  }
  return std::span(entries_).subspan(first_[ops], first_[ops + 1] - first_[ops]);
}

// Invalid if the victim is not a candidate.
ValueId EvictionList::candidate(const Made& victim, const Engine& engine, const StepLog& step) {
  const std::span<const ValueTicket> made = step.made_by(victim.op);
  if (victim.slot >= made.size()) {
    return {};
  }
  const ValueTicket& ticket = made[victim.slot];
  const bool can_go = engine.values().holds(ticket) &&
                      engine.value(ticket.value).candidate_index != Value::kNotCandidate;
  return can_go ? ticket.value : ValueId();
}

ValueId EvictionList::next(const Engine& engine, const StepLog& step) const {
  for (const Entry& entry : at(step.op_count())) {
    if (const ValueId victim = candidate(entry.victim, engine, step); victim.valid()) {
      return victim;
    }
  }
  return {};
}

bool EvictionList::moves_next(const Engine& engine, const StepLog& step,
                              std::uint32_t moves) const {
  for (const Entry& entry : at(step.op_count())) {
    if (entry.victim.op == kMoves) {
      if (entry.victim.slot >= moves) {
        return true;
      }
    } else if (candidate(entry.victim, engine, step).valid()) {
      return false;
    }
  }
  return false;
}

}  // namespace recoup::detail
