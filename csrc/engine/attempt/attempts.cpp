#include "csrc/engine/attempt/attempts.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

Attempts::Attempts(const Context& context, Room& room, Handover& handover)
    : options_(context.options), aids_(context.aids), room_(room), handover_(handover) {}

std::optional<OutOfBudgetReport> Attempts::run(OpKernel& kernel) const {
  Tried tried{.kernel = kernel, .attempt = {}};
  if (!aids_.in_place || !in_place(tried, std::nullopt)) [[likely]] {
    tried.attempt.paging = Paging::at_first(paging_rules(), kernel.limits());
  }
  std::optional<OutOfBudgetReport> failure = kernel.run(tried.attempt);
  while (failure && next(tried, *failure)) {
    std::optional<OutOfBudgetReport> other = kernel.run(tried.attempt);
    if (other && other->reason == Handover::kNotTaken) {
      return failure;
    }
    failure = std::move(other);
  }
  return failure;
}

bool Attempts::next(Tried& tried, const OutOfBudgetReport& failure) const {
  if (tried.attempt.in_place) {
    return false;  // the operand's bytes may be overwritten
  }
  if (tried.attempt.may_overflow()) {
    return page(tried, failure);
  }
  return !tried.kernel.limits().once &&
         (compact(tried, failure) || in_place(tried, failure.asked) || page(tried, failure));
}

// Frees in one piece what the kernel held and what it lacked. Each further failure raises the size,
// until no more can be freed.
bool Attempts::compact(Tried& tried, const OutOfBudgetReport& failure) const {
  if (!failure.fragmented || tried.all_compacted) {
    return false;
  }
  tried.contiguous = std::max(failure.workspace + failure.asked, tried.contiguous + failure.asked);
  return tried.kernel.prepare({}, [&] {
    tried.all_compacted = !room_.defragment(tried.kernel.movable(), tried.contiguous);
    return true;
  });
}

// `asked`: the bytes that the kernel lacked; nullopt: it has not run yet.
bool Attempts::in_place(Tried& tried, std::optional<Bytes> asked) const {
  if (!options_.reuse_operands || asked == Bytes(0) || handover_.value().valid()) {
    return false;
  }
  const std::vector<ValueId> operands = tried.kernel.overwritable();
  tried.attempt.in_place =
      !operands.empty() && tried.kernel.prepare({.paging = {}, .in_place = true}, [&] {
        return handover_.offer_one(operands, asked);
      });
  return tried.attempt.in_place;
}

bool Attempts::page(Tried& tried, const OutOfBudgetReport& failure) const {
  const std::optional<Paging> paging =
      tried.attempt.paging.after(paging_rules(), tried.kernel.limits(), failure.asked);
  if (!paging) {
    return false;
  }
  tried.attempt.paging = *paging;
  return tried.kernel.prepare(tried.attempt, [] { return true; });
}

}  // namespace recoup::detail
