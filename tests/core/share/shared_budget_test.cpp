// One budget for several processes.
#include "csrc/share/shared_budget.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

constexpr Bytes kTotal = 64_MiB;
constexpr SharedBudget::Settings kImpatient{.patience = std::chrono::milliseconds(50)};

class SharedBudgetTest : public testing::Test {
 protected:
  SharedBudgetTest()
      : file_(str_cat(testing::TempDir(), "recoup-shared-", getpid(), "-",
                      testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove(file_);
  }
  ~SharedBudgetTest() override { std::filesystem::remove(file_); }

  [[nodiscard]] std::unique_ptr<SharedBudget> join(Bytes total = kTotal) const {
    return std::make_unique<SharedBudget>(file_, total, kImpatient);
  }
  [[nodiscard]] static Bytes sum(const SharedBudget& shared) {
    Bytes all{0};
    for (const SharePart& part : shared.parts()) {
      all += part.part + part.workers;
    }
    return all;
  }
  // Runs `function` in another process, which a signal may end.
  template <class Function>
  static pid_t in_process(Function&& function) {
    const pid_t child = fork();
    if (child == 0) {
      function();
      _exit(0);
    }
    return child;
  }

  const std::string file_;
};

TEST_F(SharedBudgetTest, TheFirstPartIsSmallAndGrowsByWhatIsFree) {
  const auto one = join();
  EXPECT_EQ(one->part(), 1_MiB);
  EXPECT_EQ(one->take(1_B), 1_MiB);
  EXPECT_EQ(one->take(20_MiB), 20_MiB);
  const auto other = join();
  EXPECT_EQ(other->part(), 1_MiB);
  EXPECT_EQ(other->take(42_MiB), 41_MiB);
  EXPECT_EQ(other->take(1_B), 0_B);
  EXPECT_EQ(sum(*one), kTotal);
  one->give(22_MiB);
  EXPECT_EQ(one->part(), 0_B);
  EXPECT_EQ(other->take(21_MiB + 1_B), 21_MiB + 64_KiB);
  EXPECT_EQ(other->counters().most, 63_MiB + 64_KiB);
}

TEST_F(SharedBudgetTest, TheLastRemainderIsTaken) {
  const auto one = join(1_MiB + 100_B);
  EXPECT_EQ(one->take(1_MiB - 64_KiB + 1_B), 1_MiB - 64_KiB + 100_B);
}

TEST_F(SharedBudgetTest, AnotherTotalIsRefused) {
  const auto one = join();
  EXPECT_THROW((void)join(65_MiB), std::invalid_argument);
  EXPECT_THROW((void)join(0_B), std::invalid_argument);
  EXPECT_EQ(one->parts().size(), 1U);
}

TEST_F(SharedBudgetTest, TheLastProcessRemovesTheFile) {
  auto one = join();
  auto other = join();
  one.reset();
  EXPECT_TRUE(std::filesystem::exists(file_));
  other.reset();
  EXPECT_FALSE(std::filesystem::exists(file_));
  EXPECT_NO_THROW((void)join(32_MiB));  // another total is possible now
}

TEST_F(SharedBudgetTest, AFileOfAnotherKindIsRefused) {
  std::filesystem::create_directory(file_);
  EXPECT_THROW((void)join(), std::system_error);
  std::filesystem::remove(file_);
  std::filesystem::create_symlink("/nowhere", file_);
  EXPECT_THROW((void)join(), std::system_error);
  std::filesystem::remove(file_);
  {
    const auto other_version = std::make_unique<SharedBudget>(file_, kTotal, kImpatient);
  }
  const int file = open(file_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(file, "garbage!", 8), 8);
  close(file);
  EXPECT_THROW((void)join(), std::runtime_error);
}

TEST_F(SharedBudgetTest, NothingLeftIsAnError) {
  const auto one = join();
  EXPECT_EQ(one->take(63_MiB), 63_MiB);
  try {
    (void)join();
    FAIL() << "nothing is left";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(),
                 "nothing is left of the shared budget: the budget of 67,108,864 bytes (64.0 MiB) "
                 "is shared: others have 67,108,864 bytes (64.0 MiB) of it (processes: 1)");
  }
  EXPECT_EQ(one->parts().size(), 1U);
}

TEST_F(SharedBudgetTest, AWaitingProcessGetsWhatAnotherGives) {
  const auto one = join();
  const auto other = join();
  EXPECT_EQ(one->take(62_MiB), 62_MiB);
  std::thread giver([&] {
    for (;;) {
      for (const SharePart& part : one->parts()) {
        if (part.needs > 0_B) {
          EXPECT_FALSE(part.is_own);
          EXPECT_EQ(part.needs, 10_MiB);
          one->give(5_MiB);
          EXPECT_EQ(one->take(1_B), 0_B);  // it is for the process that waits
          one->give(5_MiB);
          return;
        }
      }
    }
  });
  EXPECT_EQ(other->wait_for(10_MiB), 10_MiB);
  giver.join();
  EXPECT_EQ(other->part(), 11_MiB);
  EXPECT_EQ(other->counters().waits, 1);
  EXPECT_GT(other->counters().wait_time, Nanoseconds(0));
  EXPECT_EQ(one->parts()[1].needs, 0_B);
}

TEST_F(SharedBudgetTest, AWaitThatCannotEndFails) {
  const auto one = join();
  EXPECT_EQ(one->wait_for(64_MiB), 0_B);  // no other process could give it
  EXPECT_EQ(one->counters().waits, 0);
  const auto other = join();
  EXPECT_EQ(other->wait_for(64_MiB), 0_B);  // more than all
  EXPECT_EQ(one->take(62_MiB), 62_MiB);
  EXPECT_EQ(other->wait_for(1_MiB), 0_B);  // out of patience
  EXPECT_EQ(other->counters().waits, 1);
}

TEST_F(SharedBudgetTest, ALimitHoldsUnlessAnOpWouldFail) {
  const auto one = join();
  const auto other = join();
  one->set_limit(2_MiB);
  EXPECT_EQ(one->take(5_MiB), 1_MiB);
  EXPECT_EQ(one->take(1_B), 0_B);
  EXPECT_EQ(one->wait_for(1_MiB), 1_MiB);
}

TEST_F(SharedBudgetTest, WorkersAreCharged) {
  const auto one = join();
  const auto other = join();
  one->publish(5_MiB, 30_MiB);
  EXPECT_EQ(other->take(33_MiB), 32_MiB);
  EXPECT_EQ(other->parts()[0].demand, 5_MiB);
  EXPECT_NE(other->reason().find("worker processes 31,457,280"), std::string::npos)
      << other->reason();
}

TEST_F(SharedBudgetTest, AKilledProcessLeavesItsPart) {
  const auto one = std::make_unique<SharedBudget>(file_, kTotal);
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = in_process([&] {
    SharedBudget its(file_, kTotal, kImpatient);
    const Bytes got = its.take(62_MiB);
    (void)!write(ready[1], &got, sizeof(got));
    pause();
  });
  Bytes got{0};
  ASSERT_EQ(read(ready[0], &got, sizeof(got)), static_cast<ssize_t>(sizeof(got)));
  EXPECT_EQ(got, 62_MiB);
  EXPECT_EQ(one->take(1_B), 0_B);
  kill(child, SIGKILL);
  // Dead, though its parent has not heard of it yet.
  EXPECT_EQ(one->wait_for(60_MiB), 60_MiB);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(one->parts().size(), 1U);
}

TEST_F(SharedBudgetTest, AForkedChildHasNoPart) {
  const auto one = join();
  const pid_t child = in_process([&] {
    const bool idle = one->take(1_B) == 0_B && one->wait_for(1_B) == 0_B && one->parts().empty();
    one->give(1_MiB);
    one->~SharedBudget();
    _exit(idle ? 0 : 1);
  });
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(one->part(), 1_MiB);
  EXPECT_TRUE(std::filesystem::exists(file_));
}

// Processes that take, give, wait and are killed at any moment.
// Whether the system releases the mutexes of a killed process; qemu's emulation of user programs
// does not.
bool releases_mutexes_of_killed_processes() {
  robust_list_head* head = nullptr;
  std::size_t size = 0;
  return syscall(SYS_get_robust_list, 0, &head, &size) == 0;
}

TEST_F(SharedBudgetTest, TheSumNeverExceedsTheTotal) {
  if (!releases_mutexes_of_killed_processes()) {
    GTEST_SKIP() << "the system has no robust mutexes";
  }
  const auto watcher = join();
  const auto run = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](std::uint64_t most) {
      return Bytes(static_cast<std::int64_t>(1 + random() % most));
    };
    for (;;) {
      SharedBudget shared(file_, kTotal,
                          SharedBudget::Settings{.patience = std::chrono::milliseconds(2)});
      for (int i = 0; i < 50; ++i) {
        switch (random() % 4) {
          case 0:
            (void)shared.take(draw(30 << 20));
            break;
          case 1:
            (void)shared.wait_for(draw(30 << 20));
            break;
          default:
            if (const Bytes part = shared.part(); part > 0_B) {
              shared.give(draw(static_cast<std::uint64_t>(part.count())));
            }
        }
      }
    }
  };
  const auto start = [&](std::uint64_t seed) {
    return in_process([&] {
      try {
        run(seed);
      } catch (const std::runtime_error&) {  // it could not join
      }
    });
  };
  std::mt19937_64 random(7);
  std::vector<pid_t> children;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    children.push_back(start(seed));
    if (children.size() == 4) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      const std::size_t index = random() % children.size();
      kill(children[index], SIGKILL);
      waitpid(children[index], nullptr, 0);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(index));
    }
    for (int look = 0; look < 20; ++look) {
      ASSERT_LE(sum(*watcher), kTotal);
    }
  }
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  EXPECT_EQ(watcher->take(63_MiB), 63_MiB);
}

}  // namespace
}  // namespace recoup::detail
