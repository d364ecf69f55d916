// State, which is changed in place after it was read, is non-recomputable. So a program that makes
// its model inside the scope runs in every budget above the smallest possible one.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/core/support/engine_program.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

Options options(Bytes budget) { return plain_options(budget, "recoup"); }

TEST(EngineState, IsNonRecomputableAfterAWriteThatFollowsARead) {
  Program p(options(1_MiB));
  const Tensor weight = p.op({}, 1_KiB);
  p.update(weight);
  EXPECT_FALSE(p.non_recomputable(weight))
      << "no op has read it: an activation, or its initialization";
  const Tensor gradient = p.source(1_KiB);
  const Tensor y = p.op({weight}, 1_KiB);
  EXPECT_FALSE(p.non_recomputable(weight));
  p.update(weight, {gradient});
  EXPECT_TRUE(p.non_recomputable(weight));
  EXPECT_TRUE(p.non_recomputable(y)) << "its source has changed: a freeze";
  p.update(weight);
  EXPECT_TRUE(p.non_recomputable(weight));
  p.expect_all();
  p.check();
}

// Dropout masks and weight decay scale values in place.
TEST(EngineState, ScalingAloneIsNoStateChange) {
  Program p(options(1_MiB));
  const Tensor mask = p.op({}, 1_KiB);
  const Tensor y = p.op({mask}, 1_KiB);
  p.update(mask);
  EXPECT_FALSE(p.non_recomputable(mask));
  EXPECT_FALSE(p.non_recomputable(y));
  p.update(mask, {p.source(1_KiB)});
  EXPECT_TRUE(p.non_recomputable(mask)) << "it was read before it was scaled";
  p.expect_all();
  p.check();
}

// A gradient that one branch has read, before the gradient of another branch is added.
TEST(EngineState, AComputedValueThatChangesOnceIsNotState) {
  Program p(options(1_MiB));
  const Tensor x = p.source(1_KiB);
  const Tensor sum = p.op({x}, 1_KiB);
  const Tensor branch = p.op({sum}, 1_KiB);
  p.update(sum, {branch});
  EXPECT_FALSE(p.non_recomputable(sum));
  p.op({sum}, 1_KiB);
  p.update(sum, {branch});
  EXPECT_TRUE(p.non_recomputable(sum)) << "read and changed a second time";
  p.expect_all();
  p.check();
}

TEST(EngineState, AnOverwrittenBufferIsNotState) {
  Program p(options(1_MiB));
  const Tensor buffer = p.op({}, 1_KiB);
  p.op({buffer}, 1_KiB);
  p.overwrite(buffer);
  EXPECT_FALSE(p.non_recomputable(buffer));
  p.check();
}

TEST(EngineState, IsRestoredBeforeItChanges) {
  Program p(options(1_MiB));
  const Tensor weight = p.op({}, 1_KiB);
  const Tensor y = p.op({weight}, 1_KiB);
  ASSERT_TRUE(p.evict(weight));
  ASSERT_TRUE(p.evict(y));
  p.update(weight, {p.source(1_KiB)});
  EXPECT_TRUE(p.non_recomputable(weight));
  p.expect_all();
  p.check();
}

TEST(EngineState, ReadsOfReplaysDoNotCount) {
  Program p(options(1_MiB));
  const Tensor x = p.op({}, 1_KiB);
  const Tensor y = p.op({x}, 1_KiB);
  p.overwrite(x);  // new content that no op has read
  ASSERT_TRUE(p.evict(y));
  p.expect(y);
  p.update(x);
  EXPECT_FALSE(p.non_recomputable(x));
  p.check();
}

// A small net with a model, gradients and two moments per parameter, all made inside the scope, as
// with AdamW. Returns whether it fits.
bool trains(Bytes budget, int steps) {
  constexpr std::size_t kLayers = 4;
  constexpr Bytes kWeight = 1_KiB;
  constexpr Bytes kActivation = 768_B;
  Program p(options(budget));
  try {
    std::vector<Tensor> weights;
    for (std::size_t i = 0; i < kLayers; ++i) {
      weights.push_back(p.op({}, kWeight));
      p.overwrite(weights.back());
    }
    std::vector<Tensor> first;
    std::vector<Tensor> second;
    std::vector<Tensor> gradients;
    for (int step = 0; step < steps; ++step) {
      const Tensor x = p.source(kActivation);
      std::vector<Tensor> activations{x};
      for (std::size_t i = 0; i < kLayers; ++i) {
        const Tensor product = p.op({activations.back(), weights[i]}, kActivation);
        activations.push_back(p.op({product}, kActivation));
        p.drop(product);
      }
      for (const Tensor gradient : gradients) {
        p.drop(gradient);
      }
      gradients.assign(kLayers, 0);
      Tensor delta = p.op({activations.back()}, kActivation);
      for (std::size_t i = kLayers; i-- > 0;) {
        gradients[i] = p.op({activations[i], delta}, kWeight);
        const Tensor next = p.op({delta, weights[i], activations[i + 1]}, kActivation);
        p.drop(delta);
        p.drop(activations[i + 1]);
        delta = next;
      }
      p.drop(delta);
      p.drop(x);
      for (std::size_t i = 0; i < kLayers; ++i) {
        if (step == 0) {
          first.push_back(p.op({}, kWeight));
          second.push_back(p.op({}, kWeight));
        }
        p.update(weights[i]);
        p.update(first[i], {gradients[i]});
        p.update(second[i]);
        p.update(second[i], {gradients[i]});
        const Tensor root = p.op({second[i]}, kWeight);
        p.update(weights[i], {first[i], root});
        p.drop(root);
      }
    }
    p.check();
    return true;
  } catch (const OutOfBudget&) {
    return false;
  }
}

TEST(EngineState, MoreBudgetNeverFails) {
  for (const int steps : {1, 2, 3, 20}) {
    std::optional<Bytes> least;
    for (Bytes budget = 2_KiB; budget < 32_KiB; budget += Bytes(seeds(128, 512))) {
      const bool fits = trains(budget, steps);
      if (fits && !least) {
        least = budget;
      }
      EXPECT_EQ(fits, least.has_value()) << steps << " steps in " << to_string(budget) << " after "
                                         << to_string(least.value_or(0_B));
    }
    ASSERT_TRUE(least.has_value());
    if (steps > 2) {
      EXPECT_EQ(trains(*least, 20), true)
          << "a budget that passes " << steps << " steps passes all";
    }
  }
}

}  // namespace
}  // namespace recoup::detail
