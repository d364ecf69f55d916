#include "csrc/engine/base/cost_memory.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

CostMemory::Row& CostMemory::row_of(CostKey kind) {
  if (const auto found = young_.find(kind); found != young_.end()) {
    return found->second;
  }
  if (young_.size() >= half_) {
    old_ = std::exchange(young_, {});
  }
  Row row;
  if (const auto found = old_.find(kind); found != old_.end()) {
    row = found->second;
    old_.erase(found);
  }
  return young_.emplace(kind, row).first->second;
}

Nanoseconds CostMemory::learn(CostKey kind, Nanoseconds measured) {
  Row& row = row_of(kind);
  row.last[row.count % kLast] = measured;
  ++row.count;
  std::array<Nanoseconds, kLast> sorted = row.last;
  const std::size_t known = std::min<std::size_t>(row.count, kLast);
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((known - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(known));
  row.median = *middle;
  return row.median;
}

std::optional<Nanoseconds> CostMemory::belief(CostKey kind) const {
  for (const Table* table : {&young_, &old_}) {
    if (const auto found = table->find(kind); found != table->end()) {
      return found->second.median;
    }
  }
  return std::nullopt;
}

std::size_t CostMemory::memory() const {
  constexpr std::size_t kNode = sizeof(Table::value_type) + 2 * sizeof(void*);
  return kinds() * kNode + (young_.bucket_count() + old_.bucket_count()) * sizeof(void*);
}

}  // namespace recoup::detail
