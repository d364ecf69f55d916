#include "csrc/policy/kinetic.h"

#include <algorithm>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

constexpr std::uint8_t kMostSlack = 1;
constexpr std::uint8_t kLeastSlack = 20;

// Both are up to 2^63, so it fits.
std::uint64_t sum(Nanoseconds a, Nanoseconds b) {
  return static_cast<std::uint64_t>(a.count()) + static_cast<std::uint64_t>(b.count());
}

}  // namespace

std::int64_t KineticOrder::update(const PolicyView& view, std::optional<Neighborhood> kind) {
  const std::int64_t before = tournament_.looks();
  kind_ = kind;
  for (ValueId id : view.changes()) {
    if (const auto index = view.index_of(id)) {
      enter(view, view.candidate(*index));
    } else {
      tournament_.leave(id);
    }
  }
  while (!expiries_.empty() && expiries_.front().at < view.returned_cost()) {
    const Expiry expired = expiries_.front();
    std::pop_heap(expiries_.begin(), expiries_.end());
    expiries_.pop_back();
    Slack& slack = slacks_[expired.id.index()];
    if (slack.good_until != expired.at) {
      continue;  // it has been looked at since
    }
    slack.good_until = Nanoseconds(-1);
    slack.shift = std::max<std::uint8_t>(slack.shift - 1, kMostSlack);
    if (const auto index = view.index_of(expired.id)) {
      enter(view, view.candidate(*index));
    }
  }
  tournament_.play(view.now());
  return tournament_.looks() - before;
}

Candidate KineticOrder::look_at(const PolicyView& view, const Contender& contender) {
  const auto index = view.index_of(contender.id);
  RECOUP_CHECK(index.has_value(), "value ", contender.id.index(), " is no candidate any more");
  const Candidate candidate = view.candidate(*index);
  RECOUP_CHECK(candidate.id == contender.id && candidate.size == contender.size &&
                   candidate.last_access == contender.last_access,
               "a change of value ", contender.id.index(), " was not told");
  return candidate;
}

void KineticOrder::enter(const PolicyView& view, const Candidate& candidate) {
  Nanoseconds around{};
  if (kind_ == Neighborhood::kExact) {
    around = candidate.exact_at_least;
  } else if (kind_ == Neighborhood::kEquivalence) {
    around = less_slack(candidate.equivalence_at_least, candidate.id, view.returned_cost());
  }
  tournament_.enter({.id = candidate.id,
                     .size = candidate.size,
                     .cost = sum(candidate.own_cost, around),
                     .last_access = candidate.last_access});
}

void KineticOrder::learn(const PolicyView& view, const Candidate& candidate, Nanoseconds around) {
  if (!kind_) {
    return;
  }
  if (kind_ == Neighborhood::kEquivalence) {
    if (candidate.id.index() < slacks_.size()) {
      Slack& slack = slacks_[candidate.id.index()];
      slack.shift = std::min<std::uint8_t>(slack.shift + 1, kLeastSlack);
    }
    around = less_slack(around, candidate.id, view.returned_cost());
  }
  tournament_.enter({.id = candidate.id,
                     .size = candidate.size,
                     .cost = sum(candidate.own_cost, around),
                     .last_access = candidate.last_access});
}

Nanoseconds KineticOrder::less_slack(Nanoseconds around, ValueId id, Nanoseconds returned) {
  if (id.index() >= slacks_.size()) {
    slacks_.resize(std::size_t{id.index()} + 1);
  }
  Slack& slack = slacks_[id.index()];
  if (around == Nanoseconds(0)) {
    slack.good_until = Nanoseconds(-1);
    return around;
  }
  const Nanoseconds less = around / (std::int64_t{1} << slack.shift);
  slack.good_until = returned + less;
  expiries_.push_back({slack.good_until, id});
  std::push_heap(expiries_.begin(), expiries_.end());
  if (expiries_.size() > 2 * slacks_.size()) {
    drop_outdated();
  }
  return around - less;
}

// While nothing returns none of them is reached.
void KineticOrder::drop_outdated() {
  std::erase_if(expiries_, [this](const Expiry& expiry) {
    return slacks_[expiry.id.index()].good_until != expiry.at;
  });
  std::make_heap(expiries_.begin(), expiries_.end());
}

}  // namespace recoup::detail
