// A part of the budget that what was there before takes, seen or not.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/core/support/engine_program.h"

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
  const Tensor x = p.source(1_KiB);
  const Tensor a = p.op({x}, 1_KiB);
  const Tensor b = p.op({a}, 1_KiB);
  EXPECT_TRUE(p.resident(a));
  const Tensor c = p.op({b}, 1_KiB);
  EXPECT_FALSE(p.resident(a));
  EXPECT_EQ(p.stats().peak_bytes, (8_KiB).count());
  EXPECT_EQ(p.stats().external_bytes, (5_KiB).count());
  p.check();
  EXPECT_THROW(p.source(4_KiB), OutOfBudget) << "it has 3 KiB";
  p.grow(9_KiB);
  p.source(1_KiB);
  p.drop(c);
  p.check();
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
  EXPECT_EQ(p.stats().old_version_copies, 1);
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
