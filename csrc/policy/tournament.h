// Candidates in the order of price / staleness, kept while time passes: a kinetic tournament.
//
//   -1/score = -(t - last access) / price is a line, so two candidates change places at most once,
//   at a time that is known when they meet. Every match keeps its winner and the last tick at which
//   all winners below it are right; only matches that are past it are played again.
//
//              a until 70
//             /          \            what a policy wants is the root's; the runner-up is among
//       a until 90     c until 70     those who lost to it on its way up
//        /    \         /    \.
//       a      b       c      d
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "recoup/policy.h"

namespace recoup::detail {

struct Contender {
  ValueId id;
  Bytes size;        // > 0
  double price = 0;  // the score one tick after the last access: 0, or far from under- and overflow
  Tick last_access = 0;

  [[nodiscard]] double score(Tick now) const;
};

// A lower score; of equal ones the larger size, then the lower id.
bool goes_before(const Contender& a, const Contender& b, Tick now);

class Tournament {
 public:
  // A match, the root among them, or a single contender.
  using Node = std::uint32_t;
  static constexpr Node kRoot = 1;

  // Enters it, or takes what is new of it.
  void enter(const Contender& contender);
  // If it is in.
  void leave(ValueId id);
  // Plays what must be played at this tick. Ticks never decrease.
  void play(Tick now);

  // The rest is of the last play(). Null: nobody is left there. No contender below `node` has a
  // score lower than the winner's by more than kError of it.
  [[nodiscard]] const Contender* winner(Node node) const {
    const std::uint32_t place = nodes_.empty() ? kNobody : nodes_[node].winner;
    return place == kNobody ? nullptr : &places_[place];
  }
  // Calls function(node) for disjoint nodes that hold all below `node` but its winner.
  template <class Function>
  void for_each_loser(Node node, Function&& function) const {
    Node at = capacity_ + nodes_[node].winner;
    while (at > node) {
      if (nodes_[at ^ 1U].winner != kNobody) {
        function(at ^ 1U);
      }
      at /= 2;
    }
  }
  // Times of matches are rounded and so are scores; what they are off adds up to far less.
  static constexpr double kError = 1e-9;

  // Contenders looked at in matches so far.
  [[nodiscard]] std::int64_t looks() const { return looks_; }

 private:
  static constexpr std::uint32_t kNobody = 0xffffffff;
  static constexpr Tick kForever = std::numeric_limits<Tick>::max();
  static constexpr Tick kUnplayed = std::numeric_limits<Tick>::min();
  struct Match {
    std::uint32_t winner = kNobody;  // index of its place
    Tick until = kForever;           // last tick at which this and all matches below are right
  };

  void play(Node node, Tick now);
  void set_entry(std::uint32_t place, std::uint32_t winner);
  void grow();

  std::vector<Match> nodes_;  // a heap: the children of n are 2 n and 2 n + 1
  Node capacity_ = 0;         // of places, a power of two
  std::vector<Contender> places_;
  std::vector<std::uint32_t> free_;  // places, the last left first: what is near in time is near
  std::vector<std::uint32_t> place_of_;  // by index of the value
  std::int64_t looks_ = 0;
};

}  // namespace recoup::detail
