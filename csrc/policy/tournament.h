// Tournament: candidates in the order of price / staleness, maintained while time passes (a kinetic
// tournament).
//
//   -1/score = -(t - last access) / price is a line, so two candidates change places at most once,
//   at a time that is known when they are compared. Every match stores its winner and the last tick
//   until which all winners below it are valid. Only matches past that tick are played again.
//
//              a until 70
//             /          \            The policy wants the winner at the root. The runner-up
//       a until 90     c until 70     is among those that lost to it on its way up.
//        /    \         /    \.
//       a      b       c      d
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "recoup/policy.h"

namespace recoup::detail {

// A candidate in the tournament.
struct Contender {
  ValueId id;
  Bytes size;        // > 0
  double price = 0;  // the score one tick after the last access: 0, or far from under- and overflow
  Tick last_access = 0;

  [[nodiscard]] double score(Tick now) const;
};

// Whether `a` has a lower score; if equal, the larger size; if equal, the lower id.
bool goes_before(const Contender& a, const Contender& b, Tick now);

class Tournament {
 public:
  // A match, the root among them, or a single contender.
  using Node = std::uint32_t;
  static constexpr Node kRoot = 1;

  // Adds or updates a contender.
  void enter(const Contender& contender);
  // Removes a contender, if it takes part.
  void leave(ValueId id);
  // Plays the matches that are no longer valid at this tick. Ticks must not decrease.
  void play(Tick now);

  // The winner below `node` as of the last play(); null if no contender is there. Another contender
  // below `node` may have a lower score, but by no more than kError of the winner's score.
  [[nodiscard]] const Contender* winner(Node node) const {
    const std::uint32_t place = nodes_.empty() ? kNone : nodes_[node].winner;
    return place == kNone ? nullptr : &places_[place];
  }
  // Calls function(node) for disjoint nodes that together hold all contenders below `node` but its
  // winner.
  template <class Function>
  void for_each_loser(Node node, Function&& function) const {
    Node at = capacity_ + nodes_[node].winner;
    while (at > node) {
      if (nodes_[at ^ 1U].winner != kNone) {
        function(at ^ 1U);
      }
      at /= 2;
    }
  }
  // Relative error of the order: times of matches and scores are rounded, which adds up to far
  // less.
  static constexpr double kError = 1e-9;

  // Number of contenders that matches have looked at so far.
  [[nodiscard]] std::int64_t looks() const { return looks_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr Tick kForever = std::numeric_limits<Tick>::max();
  static constexpr Tick kUnplayed = std::numeric_limits<Tick>::min();
  struct Match {
    std::uint32_t winner = kNone;  // index of the winner's place
    Tick until = kForever;  // last tick at which this match and all matches below it are valid
  };

  void play(Node node, Tick now);
  void set_entry(std::uint32_t place, std::uint32_t winner);
  void grow();

  std::vector<Match> nodes_;  // a heap: the children of n are 2 n and 2 n + 1
  Node capacity_ = 0;         // number of places, a power of two
  std::vector<Contender> places_;
  // Free places, the last vacated first: contenders of similar age stay close.
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> place_of_;  // by index of the value
  std::int64_t looks_ = 0;
};

}  // namespace recoup::detail
