#include "csrc/steps/follow/eviction_list.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace recoup::detail {

EvictionList::EvictionList(std::vector<Entry> entries) {
  for (const Entry& entry : entries) {
    RECOUP_CHECK(entries_.empty() || entries_.back().ops <= entry.ops);
    if (entries_.empty() || entries_.back().ops != entry.ops) {
      first_.resize(entry.ops + std::size_t{1}, static_cast<std::uint32_t>(entries_.size()));
    }
    entries_.push_back(entry);
  }
  first_.push_back(static_cast<std::uint32_t>(entries_.size()));
}

std::span<const EvictionList::Entry> EvictionList::at(std::uint32_t ops) const {
  if (ops + std::size_t{1} >= first_.size()) {
    return {};
  }
  return std::span(entries_).subspan(first_[ops], first_[ops + 1] - first_[ops]);
}

std::int64_t EvictionList::moves() const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const Entry& each) { return each.victim.op == kMoves; });
}

PlannedVictim EvictionList::victim_of(const Entry& entry, const StepLog& step) {
  const ValueId value = entry.spills ? step.spillable(entry.victim) : step.candidate(entry.victim);
  return {.value = value, .by = entry.spills ? GetBack::kCopy : GetBack::kReplay};
}

PlannedVictim EvictionList::next(const StepLog& step) const {
  for (const Entry& entry : at(step.op_count())) {
    if (step.candidate(entry.victim).valid()) {
      return victim_of(entry, step);
    }
  }
  return {};
}

bool EvictionList::moves_next(const StepLog& step, std::uint32_t moves) const {
  for (const Entry& entry : at(step.op_count())) {
    if (entry.victim.op == kMoves) {
      if (entry.victim.slot >= moves) {
        return true;
      }
    } else if (step.candidate(entry.victim).valid()) {
      return false;
    }
  }
  return false;
}

}  // namespace recoup::detail
