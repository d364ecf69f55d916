// Changes of the budget while a program runs.
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <vector>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

TEST(EngineResize, ShrinkingEvicts) {
  Program p(plain_options(8_KiB));
  const Tensor x = p.source(1_KiB);
  std::vector<Tensor> made;
  for (int i = 0; i < 6; ++i) {
    made.push_back(p.op({x}, 1_KiB));
  }
  p.shrink(3_KiB);
  EXPECT_EQ(p.engine().budget(), 3_KiB);
  EXPECT_LE(p.engine().charged(), 3_KiB);
  for (const BlockView& block : p.engine().pool().taken()) {
    EXPECT_LE(block.offset + block.size, 3_KiB);
  }
  ASSERT_NO_THROW(p.engine().check());
  p.expect_all();
  EXPECT_THROW(p.source(3_KiB), OutOfBudget);
  p.grow(8_KiB);
  p.source(3_KiB);
  p.expect_all();
}

TEST(EngineResize, AFailedShrinkChangesNothing) {
  Program p(plain_options(8_KiB));
  const Tensor a = p.source(2_KiB);
  const Tensor b = p.source(2_KiB);
  const Tensor c = p.op({a}, 1_KiB);
  EXPECT_THROW(p.shrink(3_KiB), OutOfBudget);
  EXPECT_EQ(p.engine().budget(), 8_KiB);
  p.check();
  const Tensor d = p.source(3_KiB);
  for (const Tensor tensor : {a, b, c, d}) {
    p.expect(tensor);
  }
  p.check();
}

TEST(EngineResize, NothingIsEvictedForAnImpossibleBudget) {
  Program p(plain_options(8_KiB));
  const Tensor source = p.source(3_KiB);
  const Tensor first = p.op({source}, 1_KiB);
  const Tensor second = p.op({source}, 1_KiB);
  try {
    p.shrink(2_KiB);
    FAIL() << "the source alone is larger";
  } catch (const OutOfBudget& error) {
    EXPECT_EQ(error.report().least, 3_KiB);
  }
  EXPECT_TRUE(p.resident(first) && p.resident(second));
  p.check();
}

TEST(EngineResize, ImmovableBlocksLimitShrinking) {
  Program p(plain_options(8_KiB));
  const Tensor pinned = p.source(1_KiB);
  p.pin(pinned);
  ASSERT_GE(p.storage(pinned).offset.value(), 4_KiB);
  EXPECT_THROW(p.shrink(4_KiB), OutOfBudget);
  p.check();
  p.unpin(pinned);
  p.shrink(4_KiB);
  EXPECT_LE(p.storage(pinned).offset.value(), 3_KiB);
  p.expect(pinned);
}

TEST(EngineResize, RefusesInvalidBudgets) {
  Program p(plain_options(8_KiB));
  for (const Bytes wrong : {0_B, Bytes(-1)}) {
    EXPECT_THROW(p.shrink(wrong), std::invalid_argument);
  }
  for (const Bytes not_smaller : {8_KiB, 9_KiB}) {
    EXPECT_THROW(p.shrink(not_smaller), InternalError);
  }
  EXPECT_THROW(p.grow(8_KiB), InternalError);
}

// Changes the budget to a smaller one, or, if that fails, to the one that the error names: to no
// smaller one, but in a pool of segments.
void shrink_or_follow(Program& p, Bytes budget) {
  const Bytes before = p.engine().budget();
  try {
    p.shrink(budget);
  } catch (const OutOfBudget& error) {
    const Bytes enough = error.report().enough;
    ASSERT_GT(enough, budget);
    ASSERT_LE(enough, before);
    if (p.engine().options().block_size == Bytes(0)) {
      EXPECT_THROW(p.shrink(enough - 64_B), OutOfBudget);
    }
    if (enough < before) {
      ASSERT_NO_THROW(p.shrink(enough));
    }
  }
}

TEST(EngineResize, AnErrorNamesTheLeastBudget) {
  Program p(plain_options(8_KiB));
  const Tensor source = p.source(1_KiB);
  const Tensor first = p.op({source}, 1_KiB);
  const Tensor second = p.op({source}, 2_KiB);
  p.drop(source);  // it stays for replays of the others
  shrink_or_follow(p, 512_B);
  EXPECT_EQ(p.engine().budget(), 1_KiB);
  p.grow(8_KiB);
  p.expect(first);
  p.pin(second);  // at the end of the pool, which it keeps from shrinking
  ASSERT_EQ(p.storage(second).offset.value() + 2_KiB, 8_KiB);
  shrink_or_follow(p, 512_B);
  EXPECT_EQ(p.engine().budget(), 8_KiB);
  ASSERT_NO_THROW(p.engine().check());
}

// A step of a random program. 0 drops a tensor other than `kept`, 1 updates one, others make one.
void random_step(Program& p, Tensor kept, std::mt19937_64& random, std::uint64_t drawn) {
  switch (drawn) {
    case 0:
      if (p.live().size() > 1 && p.live().back() != kept) {
        p.drop(p.live().back());
      }
      break;
    case 1:
      p.update(p.live()[random() % p.live().size()]);
      break;
    default:
      p.op({p.live()[random() % p.live().size()]},
           Bytes(static_cast<std::int64_t>(64 + random() % 700)));
      break;
  }
}

TEST(EngineResize, RandomProgramsStayCorrect) {
  for (std::uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Options drawn = plain_options(16_KiB);
    drawn.block_size = seed % 4 == 0 ? 1_KiB : 0_B;
    Program p(drawn);
    const Tensor x = p.source(512_B);
    for (int i = 0; i < 60; ++i) {
      const Bytes budget = p.engine().budget();
      try {
        switch (const std::uint64_t drawn_step = random() % 6; drawn_step) {
          case 0: {
            const Bytes smaller(static_cast<std::int64_t>(1 + random() % 16000));
            if (smaller < budget) {
              shrink_or_follow(p, smaller);
            }
            break;
          }
          case 1:
            if (budget < 16_KiB) {
              p.grow(budget + Bytes(static_cast<std::int64_t>(1 + random() % 4000)));
            }
            break;
          default:
            random_step(p, x, random, drawn_step - 2);
            break;
        }
      } catch (const OutOfBudget&) {
      }
      ASSERT_NO_THROW(p.engine().check());
    }
    p.grow(1_MiB);
    p.expect_all();
  }
}

// Memory of which another part of the program has some.
class SharedMemory final : public MoreMemory {
 public:
  SharedMemory(Program& program, Bytes free) : program_(program), free_(free) {
    program.device().grow(1_MiB);
    program.engine().set_more(this);
  }
  ~SharedMemory() override { program_.engine().set_more(nullptr); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Bytes take(Bytes least) override { return take_from(free_, least); }
  Bytes wait_for(Bytes least) override {
    ++waits;
    return take_from(later, least);
  }
  [[nodiscard]] std::string reason() const override { return "the others keep the rest"; }
  bool give(Bytes budget) {
    const Bytes before = program_.engine().budget();
    const bool given = program_.engine().shrink_by_free(budget);
    free_ += given ? before - budget : 0_B;
    return given;
  }
  [[nodiscard]] Bytes total() const { return program_.engine().budget() + free_ + later; }

  Bytes later{0};  // what others give to a waiting op
  int waits = 0;

 private:
  Bytes take_from(Bytes& from, Bytes least) {
    const Bytes got = from >= least ? least : 0_B;
    from -= got;
    return got;
  }

  Program& program_;
  Bytes free_;
};

TEST(EngineResize, GrowsBeforeItEvicts) {
  Program p(plain_options(2_KiB));
  SharedMemory shared(p, 4_KiB);
  const Tensor x = p.source(1_KiB);
  for (int i = 0; i < 5; ++i) {
    p.op({x}, 1_KiB);
  }
  EXPECT_EQ(p.stats().evictions, 0);
  EXPECT_EQ(p.engine().budget(), 6_KiB);
  p.op({x}, 1_KiB);
  EXPECT_EQ(p.stats().evictions, 1);
  EXPECT_EQ(shared.waits, 0);
  p.check();
}

TEST(EngineResize, WaitsBeforeItFails) {
  Program p(plain_options(2_KiB));
  SharedMemory shared(p, 0_B);
  shared.later = 1_KiB;
  const Tensor x = p.source(2_KiB);
  const Tensor y = p.source(1_KiB);
  EXPECT_EQ(shared.waits, 1);
  try {
    p.source(512_B);
    FAIL() << "nothing is left";
  } catch (const OutOfBudget& error) {
    EXPECT_EQ(error.report().reason, "the others keep the rest");
  }
  EXPECT_EQ(shared.waits, 2);
  p.expect(x);
  p.expect(y);
  p.check();
}

TEST(EngineResize, AnOpLargerThanTheBudgetWaits) {
  Program p(plain_options(1_KiB));
  SharedMemory shared(p, 0_B);
  shared.later = 3_KiB;
  p.expect(p.source(4_KiB));
  EXPECT_EQ(p.engine().budget(), 4_KiB);
}

// Before a parameter changes, its old content is copied, or an evicted result of it is restored.
TEST(EngineResize, AFreezeWaitsForWhicheverTakesLessRoom) {
  for (const Bytes result_size : {512_B, 2_KiB}) {
    SCOPED_TRACE(result_size.count());
    Program p(plain_options(1_KiB + result_size));
    const Tensor parameter = p.source(1_KiB);
    const Tensor result = p.op({parameter}, result_size);
    ASSERT_TRUE(p.evict(result));
    const Tensor other = p.source(result_size);
    SharedMemory shared(p, 0_B);
    shared.later = std::min(result_size, 1_KiB);
    p.update(parameter);
    EXPECT_EQ(shared.waits, 1);
    EXPECT_EQ(shared.later, 0_B);
    EXPECT_EQ(p.stats().old_version_copies, result_size > 1_KiB ? 1 : 0);
    EXPECT_EQ(p.stats().freezes, result_size > 1_KiB ? 0 : 1);
    p.grow(1_MiB);
    p.expect(other);
    p.expect_all();
    p.check();
  }
}

TEST(EngineResize, OnlyFreeBytesAtTheEndAreGivenWhileAnOpRuns) {
  Program p(plain_options(8_KiB));
  SharedMemory shared(p, 0_B);
  const Tensor x = p.source(1_KiB);
  const Bytes end = p.storage(x).offset.value() + 1_KiB;
  EXPECT_FALSE(shared.give(end - 64_B));
  EXPECT_EQ(p.engine().budget(), 8_KiB);
  ASSERT_GT(end, 6_KiB);  // sources are at the high end
  p.drop(x);
  EXPECT_TRUE(shared.give(1_KiB));
  EXPECT_EQ(p.engine().budget(), 1_KiB);
  p.check();
}

TEST(EngineResize, RandomProgramsThatTakeAndGiveStayCorrect) {
  int taken = 0;
  int given = 0;
  for (std::uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Program p(plain_options(2_KiB));
    SharedMemory shared(p, 6_KiB);
    shared.later = 4_KiB;
    const Bytes total = shared.total();
    const Tensor x = p.source(512_B);
    for (int i = 0; i < 60; ++i) {
      const Bytes budget = p.engine().budget();
      try {
        switch (const std::uint64_t drawn_step = random() % 5; drawn_step) {
          case 0:
            given +=
                budget > 2_KiB &&
                        shared.give(budget - Bytes(static_cast<std::int64_t>(1 + random() % 1500)))
                    ? 1
                    : 0;
            break;
          default:
            random_step(p, x, random, drawn_step - 1);
            break;
        }
      } catch (const OutOfBudget&) {
      }
      taken += p.engine().budget() > budget ? 1 : 0;
      ASSERT_EQ(shared.total(), total);
      ASSERT_NO_THROW(p.engine().check());
    }
    p.grow(1_MiB);
    p.expect_all();
  }
  EXPECT_GT(taken, 300);
  EXPECT_GT(given, 300);
}

TEST(EngineResize, TheTimeOfAFailedReplayCounts) {
  Options failing = plain_options(1_MiB);
  Program p(failing);
  const Tensor x = p.source(1_KiB);
  const Tensor y = p.op({x}, 1_KiB);
  const Tensor z = p.op({y}, 1_KiB);
  ASSERT_TRUE(p.evict(z));
  ASSERT_TRUE(p.evict(y));
  p.engine().set_test_aids({.fail_replay = 2});
  const std::int64_t before = p.stats().replay_ns;
  EXPECT_THROW(p.expect(z), InjectedFault);
  EXPECT_EQ(p.stats().replays, 1);
  EXPECT_GT(p.stats().replay_ns, before);
}

}  // namespace
}  // namespace recoup::detail
