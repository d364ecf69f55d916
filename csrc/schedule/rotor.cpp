#include "csrc/schedule/rotor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "csrc/schedule/planners.h"

namespace recoup::detail {
namespace {

constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::uint32_t kMostStages = 48;
constexpr int kTries = 6;

// Note [Rotor]
// C(s, t, m) is the least cost of the forward and backward passes through stages s ... t in m
// slots; the input of s is kept:
//
//   all    cost(s) + C(s + 1, t, m - saved(s))       keep all that stage s saves until its backward
//                                                    pass
//   split  cost(s ... k - 1) + C(k, t, m - input(k)) + C(s, k - 1, m)
//                                                    keep only the input of stage k
//
// A single stage must be kept whole.
class ChainSolver {
 public:
  ChainSolver(const std::vector<ChainStage>& stages, std::int64_t memory, int slots)
      : count_(stages.size()), slots_(static_cast<std::size_t>(slots)), prefix_(count_ + 1) {
    const std::int64_t slot = std::max<std::int64_t>(memory / slots, 1);
    const auto rounded = [&](std::int64_t bytes) {
      return static_cast<std::size_t>(std::min<std::int64_t>((bytes + slot - 1) / slot, slots + 1));
    };
    for (std::size_t i = 0; i < count_; ++i) {
      inputs_.push_back(rounded(stages[i].input));
      saved_.push_back(rounded(stages[i].saved));
      prefix_[i + 1] = prefix_[i] + stages[i].cost;
    }
    table_.assign(count_ * count_ * (slots_ + 1), kInfinite);
    choice_.assign(table_.size(), 0);
    for (std::size_t length = 1; length <= count_; ++length) {
      for (std::size_t s = 0; s + length <= count_; ++s) {
        for (std::size_t m = 0; m <= slots_; ++m) {
          solve(s, s + length - 1, m);
        }
      }
    }
  }

  [[nodiscard]] std::int64_t cost() const { return table_[at(0, count_ - 1, slots_)]; }

  // What is kept while the backward pass works on `stage`.
  [[nodiscard]] ChainState state(std::size_t stage) const {
    ChainState state{.inputs = std::vector<bool>(count_), .whole = std::vector<bool>(count_)};
    std::size_t s = 0;
    std::size_t t = count_ - 1;
    std::size_t m = slots_;
    while (s < t) {
      const std::size_t split = choice_[at(s, t, m)];
      if (split == 0) {
        state.whole[s] = true;
        if (stage == s) {
          return state;
        }
        m -= saved_[s];
        ++s;
      } else if (stage >= split) {
        state.inputs[split] = true;
        m -= inputs_[split];
        s = split;
      } else {
        t = split - 1;
      }
    }
    state.whole[s] = true;
    return state;
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t s, std::size_t t, std::size_t m) const {
    return (s * count_ + t) * (slots_ + 1) + m;
  }

  void solve(std::size_t s, std::size_t t, std::size_t m) {
    std::int64_t best = kInfinite;
    std::uint16_t chosen = 0;
    const std::int64_t own = prefix_[s + 1] - prefix_[s];
    if (saved_[s] <= m) {
      best = s == t ? own : std::min(kInfinite, own + table_[at(s + 1, t, m - saved_[s])]);
    }
    for (std::size_t k = s + 1; k <= t; ++k) {
      if (inputs_[k] > m) {
        continue;
      }
      const std::int64_t cost =
          prefix_[k] - prefix_[s] + table_[at(k, t, m - inputs_[k])] + table_[at(s, k - 1, m)];
      if (cost < best) {
        best = cost;
        chosen = static_cast<std::uint16_t>(k);
      }
    }
    table_[at(s, t, m)] = best;
    choice_[at(s, t, m)] = chosen;
  }

  std::size_t count_;
  std::size_t slots_;
  std::vector<std::int64_t> prefix_;  // cost of all previous stages
  std::vector<std::size_t> inputs_;   // in slots
  std::vector<std::size_t> saved_;
  std::vector<std::int64_t> table_;
  std::vector<std::uint16_t> choice_;  // stage of the split; 0: keep all
};

}  // namespace

std::optional<ChainSchedule> optimal_chain(const std::vector<ChainStage>& stages,
                                           std::int64_t memory, int slots) {
  if (stages.empty() || memory < 0) {
    return std::nullopt;
  }
  const ChainSolver solver(stages, memory, slots);
  if (solver.cost() >= kInfinite) {
    return std::nullopt;
  }
  ChainSchedule schedule{.cost = solver.cost(), .states = {}};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    schedule.states.push_back(solver.state(stage));
  }
  return schedule;
}

namespace {

std::vector<ChainStage> stages_of(const ForwardPass& forward,
                                  const std::vector<std::uint32_t>& bounds) {
  std::vector<ChainStage> stages;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    stages.push_back({.cost = forward.cost(bounds[s], bounds[s + 1]),
                      .input = forward.crossing(bounds[s]),
                      .saved = forward.saved(bounds[s], bounds[s + 1])});
  }
  return stages;
}

struct ChainChoice {
  Segmentation plan;
  std::int64_t over = 0;  // planned peak minus budget
  std::int64_t cost = 0;

  [[nodiscard]] bool better_than(const ChainChoice& other) const {
    return over <= 0 || other.over <= 0
               ? std::pair(std::max<std::int64_t>(over, 0), cost) <
                     std::pair(std::max<std::int64_t>(other.over, 0), other.cost)
               : over < other.over;
  }
};

}  // namespace

void plan_rotor(const ScheduleInput& input, const Round& round, Schedule& schedule) {
  const ForwardPass forward(input.graph, round);
  const PeakOfOps peak(input.graph, schedule, round.begin, round.end,
                       droppable(input.graph, round));
  const std::int64_t undroppable = undroppable_bytes(input.graph, round);
  std::optional<ChainChoice> best;
  for (std::uint32_t count = std::clamp(forward.making_count() / 2, 1U, kMostStages); count > 2;
       count = count * 2 / 3) {
    Segmentation plan{.bounds = forward.cut_evenly(count), .states = {}};
    const std::vector<ChainStage> stages = stages_of(forward, plan.bounds);
    // The chain does not model gradients and workspaces. If these exceed the budget, the chain gets
    // less memory.
    std::int64_t room = input.budget.count() - undroppable;
    for (int i = 0; i < kTries; ++i) {
      const auto chain = optimal_chain(stages, room);
      if (!chain) {
        break;
      }
      plan.states.clear();
      for (const ChainState& state : chain->states) {
        plan.states.push_back({.bounds = state.inputs, .whole = state.whole});
      }
      add_segments(input.graph, round, plan, schedule);
      const std::int64_t over = peak.peak() - input.budget.count();
      ChainChoice choice{.plan = plan, .over = over, .cost = chain->cost};
      if (!best || choice.better_than(*best)) {
        best = std::move(choice);
      }
      if (over <= 0) {
        break;
      }
      room -= over;
    }
  }
  if (best) {
    add_segments(input.graph, round, best->plan, schedule);
  } else {
    plan_recursive(input, round, schedule);  // uses the least memory
  }
}

}  // namespace recoup::detail
