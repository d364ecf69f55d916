#include "csrc/policy/tournament.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace recoup::detail {
namespace {

// The last tick until which `winner`, which is ahead at `now`, is not overtaken by `other`.
Tick ahead_until(const Contender& winner, const Contender& other, Tick now) {
  // The staleness of a value that was accessed at this tick is the same now and at the next tick.
  if (winner.last_access >= now || other.last_access >= now) {
    return now;
  }
  // `other` is ahead at t if its (t - last access) / price is larger:
  //   (winner's - other's price) * (t - other's last access)
  //     > other's price * (other's last access - winner's)
  // If the prices are so close that rounding makes this time inaccurate, the scores at that time
  // are equally close.
  if (winner.price <= other.price) {
    return std::numeric_limits<Tick>::max();
  }
  const double age = other.price / (winner.price - other.price) *
                     static_cast<double>(other.last_access - winner.last_access);
  if (age <= 0) {
    return now;  // they are equal apart from rounding
  }
  constexpr double kBeyond = 4e18;  // ticks; the sum of two such numbers still fits in a Tick
  if (age >= kBeyond) {
    return std::numeric_limits<Tick>::max();
  }
  return std::max(now, other.last_access + static_cast<Tick>(std::floor(age)));
}

}  // namespace

double Contender::score(Tick now) const {
  return price / static_cast<double>(std::max<Tick>(now - last_access, 1));
}

bool goes_before(const Contender& a, const Contender& b, Tick now) {
  const double one = a.score(now);
  const double other = b.score(now);
  if (one != other) {
    return one < other;
  }
  return a.size != b.size ? a.size > b.size : a.id < b.id;
}

void Tournament::enter(const Contender& contender) {
  const std::uint32_t index = contender.id.index();
  if (index >= place_of_.size()) {
    place_of_.resize(std::size_t{index} + 1, kNone);
  }
  std::uint32_t& place = place_of_[index];
  if (place == kNone) {
    if (free_.empty()) {
      grow();
    }
    place = free_.back();
    free_.pop_back();
  }
  places_[place] = contender;
  set_entry(place, place);
}

void Tournament::leave(ValueId id) {
  if (id.index() < place_of_.size() && place_of_[id.index()] != kNone) {
    const std::uint32_t place = std::exchange(place_of_[id.index()], kNone);
    free_.push_back(place);
    set_entry(place, kNone);
  }
}

// Marks the matches from this place to the root as unplayed.
void Tournament::set_entry(std::uint32_t place, std::uint32_t winner) {
  Node at = capacity_ + place;
  nodes_[at].winner = winner;
  for (at /= 2; at > 0 && nodes_[at].until != kUnplayed; at /= 2) {
    nodes_[at].until = kUnplayed;
  }
}

void Tournament::grow() {
  const Node old = capacity_;
  capacity_ = old == 0 ? 2 : 2 * old;
  places_.resize(capacity_);
  std::vector<Match> nodes(std::size_t{2} * capacity_);
  for (Node place = 0; place < old; ++place) {
    nodes[capacity_ + place] = nodes_[old + place];
  }
  for (Node inner = 1; inner < capacity_; ++inner) {
    nodes[inner].until = kUnplayed;
  }
  nodes_ = std::move(nodes);
  for (Node place = capacity_; place > old; --place) {
    free_.push_back(place - 1);
  }
}

void Tournament::play(Tick now) {
  if (!nodes_.empty()) {
    play(kRoot, now);
  }
}

void Tournament::play(Node node, Tick now) {
  if (nodes_[node].until >= now) {
    return;
  }
  play(2 * node, now);
  play(2 * node + 1, now);
  const Match& left = nodes_[2 * node];
  const Match& right = nodes_[2 * node + 1];
  Match& match = nodes_[node];
  match.until = std::min(left.until, right.until);
  if (left.winner == kNone || right.winner == kNone) {
    match.winner = left.winner == kNone ? right.winner : left.winner;
    return;
  }
  looks_ += 2;
  std::uint32_t first = left.winner;
  std::uint32_t second = right.winner;
  if (goes_before(places_[second], places_[first], now)) {
    std::swap(first, second);
  }
  match.winner = first;
  match.until = std::min(match.until, ahead_until(places_[first], places_[second], now));
}

}  // namespace recoup::detail
