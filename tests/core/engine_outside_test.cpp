// A part of the budget that what was there before takes, seen or not.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/core/engine_program.h"

namespace recoup::detail {
namespace {

Options options(Bytes budget, Bytes outside) {
  Options options = plain_options(budget);
  options.outside = outside;
  return options;
}

TEST(EngineOutside, ThePoolHasTheRest) {
  Program p(options(8_KiB, 5_KiB));
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  const Tensor x = p.leaf(1_KiB);
  const Tensor a = p.op({x}, 1_KiB);
  const Tensor b = p.op({a}, 1_KiB);
  EXPECT_TRUE(p.resident(a));
  const Tensor c = p.op({b}, 1_KiB);
  EXPECT_FALSE(p.resident(a));
  EXPECT_EQ(p.stats().peak_bytes, (8_KiB).count());
  EXPECT_EQ(p.stats().external_bytes, (5_KiB).count());
  p.check();
  EXPECT_THROW(p.leaf(4_KiB), OutOfBudget) << "it has 3 KiB";
  p.grow(9_KiB);
  p.leaf(1_KiB);
  p.drop(c);
  p.check();
}

// It gives back its part of the budget, which the pool gets.
TEST(EngineOutside, WhatIsAmongItIsBroughtInWhereThereIsATier) {
  Options with_tier = options(8_KiB, 5_KiB);
  with_tier.spill = 64_KiB;
  with_tier.spill_unit = 64_B;
  Program p(with_tier);
  const Tensor weights = p.external(2_KiB, Engine::Charge::kAmongOutside);
  const Tensor state = p.external(1_KiB, Engine::Charge::kAmongOutside);
  const Tensor held = p.external(1_KiB, Engine::Charge::kAmongOutside);
  p.pin(held);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  std::vector<Tensor> made;
  for (int i = 0; i < 3; ++i) {
    made.push_back(p.op({weights, state, held}, 1_KiB));
  }
  made.push_back(p.op({made.front()}, 1_KiB));
  p.check();
  EXPECT_EQ(p.stats().imports, 2);
  EXPECT_EQ(p.stats().imported_bytes, (3_KiB).count());
  EXPECT_EQ(p.engine().options().outside, 2_KiB);
  EXPECT_EQ(p.engine().pool().capacity(), 6_KiB);
  EXPECT_LE(p.stats().peak_bytes, (8_KiB).count());
  p.update(weights);
  p.check();
  // One that becomes known later follows.
  const Tensor late = p.external(512_B, Engine::Charge::kAmongOutside);
  for (int i = 0; i < 6; ++i) {
    made.push_back(p.op({late}, 1_KiB));
    made.push_back(p.op({made.back()}, 1_KiB));
  }
  EXPECT_EQ(p.stats().imports, 3);
  p.check();
}

TEST(EngineOutside, WhatIsAmongItIsBroughtInWhereRoomIsInPieces) {
  Options with_tier = options(8_KiB, 4_KiB);
  with_tier.spill = 64_KiB;
  with_tier.spill_unit = 64_B;
  Program p(with_tier);
  p.external(2_KiB, Engine::Charge::kAmongOutside);
  std::vector<Tensor> made;
  for (int i = 0; i < 4; ++i) {
    made.push_back(p.leaf(1_KiB));
  }
  p.pin(made[1]);
  p.pin(made[3]);
  p.drop(made[0]);
  p.drop(made[2]);
  p.leaf(2_KiB);
  EXPECT_EQ(p.stats().imports, 1);
  EXPECT_EQ(p.engine().pool().capacity(), 6_KiB);
  p.check();
}

// The allocator that had its memory keeps some of it.
TEST(EngineOutside, ThePoolGetsWhatIsGivenBack) {
  Options with_tier = options(8_KiB, 5_KiB);
  with_tier.spill = 64_KiB;
  with_tier.spill_unit = 64_B;
  Program p(with_tier);
  p.device().keeps_outside = 512_B;
  const Tensor weights = p.external(2_KiB, Engine::Charge::kAmongOutside);
  std::vector<Tensor> made{p.op({weights}, 1_KiB), p.op({weights}, 1_KiB), p.op({weights}, 1_KiB)};
  made.push_back(p.op({made.front()}, 1_KiB));
  p.check();
  EXPECT_EQ(p.stats().imports, 1);
  EXPECT_EQ(p.engine().options().outside, 3_KiB + 512_B);
  EXPECT_EQ(p.engine().charged() - p.engine().pool().used(), 3_KiB + 512_B);
}

TEST(EngineOutside, WhatIsAmongItIsNotChargedAgain) {
  Program p(options(8_KiB, 5_KiB));
  NumericStorage storage;
  storage.external = true;
  storage.outside.resize(1024);
  storage.nbytes = 1_KiB;
  storage.id = p.engine().add_external(&storage, 1_KiB, Engine::Charge::kAmongOutside);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  const Tensor charged = p.external(1_KiB);
  EXPECT_EQ(p.engine().charged(), 6_KiB);
  p.check();
  p.drop(charged);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.engine().storage_died(storage.id);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.check();
}

// A write to it, while an evicted value that was made from it is held, keeps a copy of what it was:
// the storage is still among what was there before.
TEST(EngineOutside, WhatIsAmongItStaysSoThroughACopyOfIt) {
  Program p(options(16_KiB, 5_KiB));
  const Tensor x = p.external(1_KiB, Engine::Charge::kAmongOutside);
  const Tensor y = p.op({x}, 9_KiB);
  ASSERT_TRUE(p.evict(y));
  p.update(x);
  EXPECT_EQ(p.stats().leaf_copies, 1);
  EXPECT_EQ(p.engine().charged(), 5_KiB + 1_KiB) << "what was there before, and the copy";
  p.check();
  p.expect_all();
  p.check();
  p.drop(y);
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.check();
}

TEST(EngineOutside, MustLeaveSomething) {
  EXPECT_THROW(Program(options(8_KiB, 8_KiB)), std::invalid_argument);
  EXPECT_THROW(Program(options(8_KiB, Bytes(-1))), std::invalid_argument);
}

}  // namespace
}  // namespace recoup::detail
