#include "csrc/steps/track/period_finder.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

PeriodFinder::Found PeriodFinder::add_op(std::uint64_t name, std::span<const Operand> operands,
                                         std::span<const StorageId> fresh) {
  ++count_;
  make_room();
  const std::uint64_t suggested = record(name, operands);
  for (const StorageId storage : fresh) {
    known_[storage] = {.birth = engine_.values()[storage].birth, .made = count_};
  }
  if (period_ > 0 && is_alike(op_at(count_), op_at(count_ - period_))) {
    if (++alike_ < period_) {
      return Found::kNothing;
    }
    alike_ = 0;
    return std::exchange(is_found_, true) ? Found::kEnd : Found::kPeriod;
  }
  is_found_ = false;
  alike_ = 0;
  period_ = suggested;
  return Found::kNothing;
}

// Returns the period that the op suggests: the largest number of ops since the last use of an
// operand. 0: none.
std::uint64_t PeriodFinder::record(std::uint64_t name, std::span<const Operand> operands) {
  Op& op = op_at(count_);
  op.name = name;
  op.uses.clear();
  std::uint64_t suggested = 0;
  for (const Operand& operand : operands) {
    if (!operand.storage.valid()) {
      continue;
    }
    const std::uint64_t birth = engine_.values()[operand.storage].birth;
    Known& known = known_[operand.storage];
    if (known.birth != birth) {
      known = {.birth = birth, .made = count_};
    }
    op.uses.push_back({.birth = birth, .age = count_ - known.made});
    const std::uint64_t ago = known.used > start_ ? count_ - known.used : 0;
    if (ago >= kShortest && ago <= kLongest) {
      suggested = std::max(suggested, ago);
    }
    known.used = count_;
  }
  return suggested;
}

bool PeriodFinder::is_alike(const Op& op, const Op& earlier) const {
  const auto same = [this](const Use& one, const Use& other) {
    return one.birth == other.birth || (one.age == other.age && one.age <= period_);
  };
  return op.name == earlier.name && std::ranges::equal(op.uses, earlier.uses, same);
}

// Ops are kept until one could be compared with the op that is the longest period later.
void PeriodFinder::make_room() {
  if (count_ - start_ < ops_.size() || ops_.size() > kLongest) {
    return;
  }
  std::vector<Op> more(std::min(2 * ops_.size() + kShortest, kLongest + 1));
  for (std::uint64_t number = start_ + 1; number < count_; ++number) {
    std::swap(more[number % more.size()], op_at(number));
  }
  ops_ = std::move(more);
}

void PeriodFinder::restart() {
  start_ = count_;
  period_ = 0;
  alike_ = 0;
  is_found_ = false;
}

}  // namespace recoup::detail
