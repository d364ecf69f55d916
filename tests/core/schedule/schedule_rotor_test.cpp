// The optimal schedule of a chain, compared with a search through all persistent ones, and its
// memory.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "csrc/schedule/rotor.h"

namespace recoup::detail {
namespace {

class BruteForce {
 public:
  BruteForce(const std::vector<ChainStage>& stages, std::int64_t memory)
      : stages_(stages), memory_(memory) {}

  // The least cost of forward passes; negative if nothing fits.
  std::int64_t cost() { return back(static_cast<int>(stages_.size()) - 1, {}, {}); }

 private:
  using Kept = std::vector<bool>;

  [[nodiscard]] std::int64_t bytes(const Kept& inputs, const Kept& whole) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      sum += (inputs[i] ? stages_[i].input : 0) + (whole[i] ? stages_[i].saved : 0);
    }
    return sum;
  }

  // Runs backward through `stage` and all earlier ones. Values kept for later stages are freed.
  std::int64_t back(int stage, Kept inputs, Kept whole) {
    inputs.resize(stages_.size());
    whole.resize(stages_.size());
    if (stage < 0) {
      return 0;
    }
    const auto at = static_cast<std::size_t>(stage);
    for (std::size_t i = at + 1; i < stages_.size(); ++i) {
      inputs[i] = whole[i] = false;
    }
    const auto key = std::tuple(stage, inputs, whole);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
    std::int64_t best = -1;
    // A backward pass reads what its stage has saved, and the stage's input.
    if (whole[at] && (at == 0 || inputs[at] || whole[at - 1])) {
      best = back(stage - 1, inputs, whole);
    } else {
      // A forward pass can start at any stage whose input is kept.
      for (std::size_t from = 0; from <= at; ++from) {
        if (from == 0 || inputs[from] || whole[from - 1]) {
          forward(from, at, 0, inputs, whole, best);
        }
      }
    }
    return known_[key] = best;
  }

  void forward(std::size_t next, std::size_t to, std::int64_t cost, const Kept& inputs,
               const Kept& whole, std::int64_t& best) {
    cost += stages_[next].cost;
    for (const bool keeps_input : {false, true}) {
      for (const bool keeps_whole : {false, true}) {
        Kept more_inputs = inputs;
        Kept more_whole = whole;
        more_inputs[next] = more_inputs[next] || (keeps_input && next > 0);
        more_whole[next] = more_whole[next] || keeps_whole;
        // Saving a stage needs its input as well (F_all of the paper keeps both).
        const bool has_input = next == 0 || more_inputs[next] || more_whole[next - 1];
        if (bytes(more_inputs, more_whole) > memory_ || (keeps_whole && !has_input)) {
          continue;
        }
        if (next < to) {
          forward(next + 1, to, cost, more_inputs, more_whole, best);
          continue;
        }
        const bool ready = more_whole[to] && (to == 0 || more_inputs[to] || more_whole[to - 1]);
        const std::int64_t rest =
            ready ? back(static_cast<int>(to), more_inputs, more_whole) : std::int64_t{-1};
        if (rest >= 0 && (best < 0 || cost + rest < best)) {
          best = cost + rest;
        }
      }
    }
  }

  const std::vector<ChainStage>& stages_;
  std::int64_t memory_;
  std::map<std::tuple<int, Kept, Kept>, std::int64_t> known_;
};

TEST(Rotor, EqualsBruteForce) {
  std::mt19937_64 random(7);
  int feasible = 0;
  int replayed = 0;
  for (int instance = 0; instance < 300; ++instance) {
    std::vector<ChainStage> stages(1 + random() % 5);
    std::int64_t all = 0;
    for (ChainStage& stage : stages) {
      stage.cost = static_cast<std::int64_t>(1 + random() % 9);
      stage.input = static_cast<std::int64_t>(1 + random() % 4);
      stage.saved = stage.input + static_cast<std::int64_t>(random() % 6);
      all += stage.cost;
    }
    const auto memory = static_cast<std::int64_t>(1 + random() % 20);
    const auto schedule = optimal_chain(stages, memory, static_cast<int>(memory));
    const std::int64_t expected = BruteForce(stages, memory).cost();
    ASSERT_EQ(schedule ? schedule->cost : -1, expected) << "instance " << instance;
    feasible += schedule ? 1 : 0;
    replayed += schedule && schedule->cost > all ? 1 : 0;
  }
  EXPECT_GT(feasible, 150);
  EXPECT_GT(replayed, 50);
}

TEST(Rotor, KeptValuesFit) {
  std::mt19937_64 random(11);
  for (int instance = 0; instance < 200; ++instance) {
    std::vector<ChainStage> stages(2 + random() % 20);
    for (ChainStage& stage : stages) {
      stage.cost = static_cast<std::int64_t>(1 + random() % 100);
      stage.input = static_cast<std::int64_t>(1 + random() % 50);
      stage.saved = static_cast<std::int64_t>(1 + random() % 200);
    }
    const auto memory = static_cast<std::int64_t>(300 + random() % 1000);
    const auto schedule = optimal_chain(stages, memory);
    if (!schedule) {
      continue;
    }
    for (std::size_t c = 0; c < stages.size(); ++c) {
      const ChainState& state = schedule->states[c];
      std::int64_t bytes = 0;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        bytes += (state.inputs[s] ? stages[s].input : 0) + (state.whole[s] ? stages[s].saved : 0);
        EXPECT_FALSE((state.inputs[s] || state.whole[s]) && s > c);
      }
      EXPECT_TRUE(state.whole[c]);
      EXPECT_LE(bytes, memory);
    }
  }
}

}  // namespace
}  // namespace recoup::detail
