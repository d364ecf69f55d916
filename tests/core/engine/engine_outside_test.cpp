// Options::outside: the part of the budget that earlier allocations use, registered or not.
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

TEST(EngineOutside, ThePoolGetsTheRest) {
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
  EXPECT_THROW(p.source(4_KiB), OutOfBudget) << "the pool has 3 KiB";
  p.grow(9_KiB);
  p.source(1_KiB);
  p.drop(c);
  p.check();
}

TEST(EngineOutside, StoragesAmongOutsideAreNotChargedAgain) {
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

// A write to such a storage, while an evicted dependent of it is held, copies its old content. The
// storage still counts as a part of `outside`.
TEST(EngineOutside, AStorageAmongOutsideStaysSoAfterACopy) {
  Program p(options(16_KiB, 5_KiB));
  const Tensor x = p.external(1_KiB, Engine::Charge::kAmongOutside);
  const Tensor y = p.op({x}, 9_KiB);
  ASSERT_TRUE(p.evict(y));
  p.update(x);
  EXPECT_EQ(p.stats().old_version_copies, 1);
  EXPECT_EQ(p.engine().charged(), 5_KiB + 1_KiB) << "the outside bytes, and the copy";
  p.check();
  p.expect_all();
  p.check();
  p.drop(y);
  p.drop(x);
  EXPECT_EQ(p.engine().charged(), 5_KiB);
  p.check();
}

TEST(EngineOutside, MustLeaveAPartOfTheBudget) {
  EXPECT_THROW(Program(options(8_KiB, 8_KiB)), std::invalid_argument);
  EXPECT_THROW(Program(options(8_KiB, Bytes(-1))), std::invalid_argument);
}

}  // namespace
}  // namespace recoup::detail
