// Tests of csrc/base and of the types in include/recoup/types.h.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/fast_mutex.h"
#include "csrc/base/fork_mutex.h"
#include "csrc/base/slab.h"
#include "csrc/base/strings.h"
#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup::detail {
namespace {

using TestId = Id<struct TestTag>;

TEST(Slab, BehavesAsAMap) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    Slab<std::uint64_t, TestId> slab;
    std::map<TestId, std::uint64_t> oracle;
    std::vector<TestId> removed;
    for (int step = 0; step < 700; ++step) {
      if (oracle.empty() || random() % 100 < (step < 500 ? 80U : 20U)) {
        const TestId id = slab.add();
        ASSERT_FALSE(oracle.contains(id));
        ASSERT_EQ(slab[id], 0U) << "a record that reuses an id must be new";
        if (!removed.empty()) {
          ASSERT_EQ(id, removed.back());
          removed.pop_back();
        }
        slab[id] = oracle[id] = 1 + random();
      } else {
        const auto at =
            std::next(oracle.begin(), static_cast<std::ptrdiff_t>(random() % oracle.size()));
        slab.remove(at->first);
        removed.push_back(at->first);
        oracle.erase(at);
      }
      ASSERT_EQ(slab.size(), oracle.size());
    }
    for (const TestId id : removed) {
      ASSERT_FALSE(slab.contains(id));
    }
    std::vector<std::pair<TestId, std::uint64_t>> listed;
    std::as_const(slab).for_each(
        [&](TestId id, std::uint64_t record) { listed.emplace_back(id, record); });
    ASSERT_TRUE(std::equal(
        listed.begin(), listed.end(), oracle.begin(), oracle.end(),
        [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }));
  }
}

TEST(Slab, ContainsAddedIdsOnly) {
  Slab<int, TestId> slab;
  EXPECT_FALSE(slab.contains(TestId()));
  EXPECT_FALSE(slab.contains(TestId(0)));
  const TestId id = slab.add();
  EXPECT_TRUE(slab.contains(id));
  EXPECT_FALSE(slab.contains(TestId(id.index() + 1)));
  EXPECT_FALSE(slab.contains(TestId(1'000'000)));
}

TEST(Slab, ReferencesStayValidWhileItGrows) {
  Slab<int, TestId> slab;
  int& first = slab[slab.add()];
  first = 7;
  for (int i = 0; i < 10'000; ++i) {
    slab.add();
  }
  EXPECT_EQ(first, 7);
  EXPECT_EQ(&slab[TestId(0)], &first);
}

TEST(Slab, MemoryIsProportionalToThePeak) {
  Slab<std::array<char, 100>, TestId> slab;
  EXPECT_EQ(slab.memory(), 0U);
  std::vector<TestId> ids;
  std::size_t peak = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1000; ++i) {
      ids.push_back(slab.add());
    }
    for (; !ids.empty(); ids.pop_back()) {
      slab.remove(ids.back());
    }
    peak = round == 0 ? slab.memory() : peak;
    EXPECT_EQ(slab.memory(), peak);
  }
  EXPECT_GE(peak, 1000 * sizeof(std::array<char, 100>));
  EXPECT_LE(peak, 2 * 1024 * sizeof(std::array<char, 100>));
}

TEST(Slab, RemovalDestroysTheRecord) {
  Slab<std::shared_ptr<int>, TestId> slab;
  const auto held = std::make_shared<int>(1);
  const TestId id = slab.add();
  slab[id] = held;
  EXPECT_EQ(held.use_count(), 2);
  slab.remove(id);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Strings, PutCommasBetweenThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1'234'567), "1,234,567");
  EXPECT_EQ(with_commas(-1), "-1");
  EXPECT_EQ(with_commas(-123'456), "-123,456");
  EXPECT_EQ(with_commas(-1'234), "-1,234");
  EXPECT_EQ(with_commas(std::numeric_limits<std::int64_t>::max()), "9,223,372,036,854,775,807");
  EXPECT_EQ(with_commas(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Strings, CommasChangeNoDigit) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    const auto number = static_cast<std::int64_t>(random()) >> random() % 64;
    std::string text = with_commas(number);
    for (std::size_t at = text.size(), digits = 0; at-- > 0 && text[at] != '-'; ++digits) {
      ASSERT_EQ(text[at] == ',', digits % 4 == 3) << text;
    }
    std::erase(text, ',');
    ASSERT_EQ(text, std::to_string(number));
  }
}

TEST(Strings, JoinPrintableArguments) {
  EXPECT_EQ(str_cat(), "");
  EXPECT_EQ(str_cat("a", 1, ' ', std::string("b"), 2.5), "a1 b2.5");
}

TEST(Check, AFailureNamesTheConditionAndTheLine) {
  const int two = 2;
  EXPECT_NO_THROW(RECOUP_CHECK(two == 2, "never built"));
  try {
    RECOUP_CHECK(two == 3, "two is ", two);
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("two == 3"), std::string::npos) << text;
    EXPECT_NE(text.find("base_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find(": two is 2"), std::string::npos) << text;
  }
}

// Both threads contend for the lock, so that every path is taken: free, held, and held with a
// waiter that must be woken.
TEST(FastMutex, AdmitsOneThreadAtATime) {
  FastMutex mutex;
  std::int64_t count = 0;
  bool inside = false;
  bool overlapped = false;
  const auto work = [&] {
    for (int i = 0; i < 300'000; ++i) {
      const std::lock_guard lock(mutex);
      overlapped = overlapped || inside;
      inside = true;
      ++count;
      if (i % 500 == 0) {
        std::this_thread::yield();  // lets the other thread find the lock held
      }
      inside = false;
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_FALSE(overlapped);
  EXPECT_EQ(count, 600'000);
}

// With several waiters, an unlock that wakes none, or forgets the others, would hang.
TEST(FastMutex, WakesEveryWaiter) {
  FastMutex mutex;
  int passed = 0;
  std::vector<std::thread> waiters;
  {
    const std::lock_guard lock(mutex);
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] {
        const std::lock_guard inner(mutex);
        ++passed;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for the threads to block
  }
  for (std::thread& waiter : waiters) {
    waiter.join();
  }
  EXPECT_EQ(passed, 4);
}

TEST(Types, BytesAreCountedInBinaryUnits) {
  EXPECT_EQ((3_B).count(), 3);
  EXPECT_EQ((3_KiB).count(), 3'072);
  EXPECT_EQ((3_MiB).count(), 3'145'728);
  EXPECT_EQ(3_GiB, Bytes(std::int64_t{3} << 30));
  EXPECT_EQ(Bytes(), 0_B);
}

TEST(Types, BytesAddAndCompare) {
  Bytes bytes = 5_B;
  bytes += 3_B;
  bytes -= 10_B;
  EXPECT_EQ(bytes, Bytes(-2));
  EXPECT_EQ(5_B - 7_B + 4_B, 2_B);
  EXPECT_LT(Bytes(-2), 0_B);
  EXPECT_GT(1_GiB, 1023_MiB);
  static_assert(!std::is_convertible_v<std::int64_t, Bytes>, "a bare integer is no size");
  static_assert(1_KiB == 1024_B);
}

TEST(Types, BytesAreShownExactlyAndReadably) {
  EXPECT_EQ(to_string(0_B), "0 bytes");
  EXPECT_EQ(to_string(1023_B), "1,023 bytes");
  EXPECT_EQ(to_string(1024_B), "1,024 bytes (1.0 KiB)");
  EXPECT_EQ(to_string(1536_B), "1,536 bytes (1.5 KiB)");
  EXPECT_EQ(to_string(5_MiB), "5,242,880 bytes (5.0 MiB)");
  EXPECT_EQ(to_string(3_GiB + 512_MiB), "3,758,096,384 bytes (3.5 GiB)");
  EXPECT_EQ(to_string(2048_GiB), "2,199,023,255,552 bytes (2.0 TiB)");
  EXPECT_EQ(to_string(Bytes(std::int64_t{1} << 52)), "4,503,599,627,370,496 bytes (4096.0 TiB)");
  EXPECT_EQ(to_string(Bytes(-2048)), "-2,048 bytes");
}

// Just below a unit the rounded number is 1024: it is shown in the next unit.
TEST(Types, BytesNeverShow1024OfAUnit) {
  EXPECT_EQ(to_string(1_MiB - 1_B), "1,048,575 bytes (1.0 MiB)");
  EXPECT_EQ(to_string(1_GiB - 1_B), "1,073,741,823 bytes (1.0 GiB)");
}

TEST(Types, IdsOfDifferentTablesDoNotMix) {
  static_assert(!std::is_convertible_v<ValueId, OpId>);
  static_assert(!std::is_constructible_v<ValueId, OpId>);
  static_assert(!std::is_convertible_v<std::uint32_t, ValueId>);
  EXPECT_FALSE(ValueId().valid());
  EXPECT_EQ(ValueId(), ValueId());
  EXPECT_TRUE(ValueId(0).valid());
  EXPECT_EQ(ValueId(7).index(), 7U);
  EXPECT_NE(ValueId(7), ValueId());
  EXPECT_LT(ValueId(7), ValueId(8));
  std::unordered_set<ValueId> set{ValueId(1), ValueId(2), ValueId(1), ValueId()};
  EXPECT_EQ(set.size(), 3U);
}

// A child can take mutexes that other threads of its parent take and free all the time.
TEST(ForkMutex, IsFreeInAChild) {
  static ForkMutex first;
  static ForkMutex second;
  ForkMutex::watch_forks();
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (ForkMutex* const mutex : {&first, &second}) {
    threads.emplace_back([mutex, &over] {
      while (!over.load()) {
        const std::lock_guard lock(*mutex);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // ends the child if it waits
      {
        const std::scoped_lock both(first, second);
      }
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  over = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace recoup::detail
