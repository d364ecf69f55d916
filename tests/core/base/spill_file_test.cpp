// The file of the spill tier, and its errors when a disk fails.
#include "csrc/disk/spill_file.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace recoup::detail {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

enum class Fault : std::uint8_t { kNone, kError, kFull, kShort, kEnd, kFlip, kNever, kSlow, kBusy };

// A disk whose `at`-th request from now on, or every request from there on, fails.
class FaultyIo final : public BlockIo {
 public:
  struct Plan {
    std::atomic<Fault> fault = Fault::kNone;
    std::atomic<int> at = 0;
    std::atomic<bool> for_good = false;
    std::atomic<int> requests = 0;
    std::atomic<bool> fail_pending = false;
  };
  explicit FaultyIo(Plan& plan) : plan_(plan), io_(make_plain_io()) {}

  void read(int buffer, int file, void* memory, std::int64_t size, std::int64_t at) override {
    const Fault fault = next();
    if (fault == Fault::kEnd) {
      done_.push_back({.buffer = buffer, .bytes = 0});
      return;
    }
    if (!fail(fault, buffer)) {
      io_->read(buffer, file, memory, fault == Fault::kShort ? cut(size) : size, at);
      if (fault == Fault::kFlip) {
        static_cast<char*>(memory)[7] ^= 1;
      }
      done_.push_back(io_->wait());
    }
  }
  void write(int buffer, int file, const void* memory, std::int64_t size,
             std::int64_t at) override {
    const Fault fault = next();
    if (!fail(fault, buffer)) {
      io_->write(buffer, file, memory, fault == Fault::kShort ? cut(size) : size, at);
      done_.push_back(io_->wait());
    }
  }
  Done wait() override {
    while (done_.empty()) {
      EXPECT_TRUE(never_);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (plan_.fail_pending) {
        done_.push_back({.buffer = *never_, .bytes = -EIO});
        never_.reset();
      }
    }
    const Done done = done_.front();
    done_.pop_front();
    return done;
  }

 private:
  static std::int64_t cut(std::int64_t size) {
    return size > 4096 ? (size / 2 / 4096) * 4096 : size;
  }
  Fault next() {
    const int request = ++plan_.requests;
    const bool now = plan_.for_good ? request >= plan_.at : request == plan_.at;
    return now ? plan_.fault.load() : Fault::kNone;
  }
  bool fail(Fault fault, int buffer) {
    switch (fault) {
      case Fault::kError:
        done_.push_back({.buffer = buffer, .bytes = -EIO});
        return true;
      case Fault::kFull:
        done_.push_back({.buffer = buffer, .bytes = -ENOSPC});
        return true;
      case Fault::kBusy:
        plan_.fault = Fault::kNone;
        done_.push_back({.buffer = buffer, .bytes = -EAGAIN});
        return true;
      case Fault::kNever:
        plan_.fault = Fault::kNone;
        never_ = buffer;
        return true;
      case Fault::kSlow:
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        return false;
      default:
        return false;
    }
  }

  Plan& plan_;
  std::unique_ptr<BlockIo> io_;
  std::deque<Done> done_;
  std::optional<int> never_;
};

std::vector<char> random_bytes(std::int64_t size, unsigned seed) {
  std::vector<char> bytes(static_cast<std::size_t>(size));
  std::mt19937 random(seed);
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  return bytes;
}

bool write(SpillFile& file, std::int64_t to, const std::vector<char>& bytes) {
  file.begin_write(Bytes(to), bytes.data(), Bytes(static_cast<std::int64_t>(bytes.size())));
  return file.end_write(Bytes(to));
}

std::vector<char> read(SpillFile& file, std::int64_t from, std::size_t size) {
  std::vector<char> bytes(size + 2, 'x');
  file.begin_read(bytes.data() + 1, Bytes(from), Bytes(static_cast<std::int64_t>(size)));
  file.end_read(Bytes(from));
  EXPECT_EQ(bytes.front(), 'x');
  EXPECT_EQ(bytes.back(), 'x');
  return {bytes.begin() + 1, bytes.end() - 1};
}

class SpillFileTest : public testing::Test {
 protected:
  // The default is long because a disk of a busy machine can take seconds.
  SpillFile::Settings settings(std::chrono::milliseconds patience = std::chrono::minutes(1)) {
    return {.make_io = [this] { return std::make_unique<FaultyIo>(plan); }, .patience = patience};
  }
  // Applies to the next requests.
  void plan_fault(Fault fault, bool for_good = false, int at = 1) {
    plan.requests = 0;
    plan.for_good = for_good;
    plan.at = at;
    plan.fault = fault;
  }

  FaultyIo::Plan plan;
};

TEST_F(SpillFileTest, ReadsWhatItWrote) {
  for (const bool uring : {true, false}) {
    SpillFile::Settings settings;
    if (!uring) {
      settings.make_io = make_plain_io;
    }
    SpillFile file("", settings);
    std::int64_t place = 0;
    for (const std::int64_t size :
         {std::int64_t{1}, std::int64_t{64}, std::int64_t{4095}, std::int64_t{4096},
          std::int64_t{4097}, kMiB - 1, kMiB, kMiB + 1, 5 * kMiB + 12345}) {
      const std::vector<char> bytes = random_bytes(size, 1);
      ASSERT_TRUE(write(file, place, bytes));
      EXPECT_EQ(read(file, place, bytes.size()), bytes);
      EXPECT_TRUE(file.holds(Bytes(place), bytes.data(), Bytes(size)));
      std::vector<char> other = bytes;
      other[bytes.size() / 2] ^= 1;
      EXPECT_FALSE(file.holds(Bytes(place), other.data(), Bytes(size)));
      place += (size + 4095) / 4096 * 4096;
    }
    const DiskSpeed speed = file.measure();
    EXPECT_GT(speed.read_ns_per_byte, 0);
    EXPECT_GT(speed.write_ns_per_byte, 0);
  }
}

// Only the first file on a disk is measured; for another one nothing is written.
TEST_F(SpillFileTest, ADiskIsMeasuredOnce) {
  const std::optional<TierSpeed> first = SpillFile("").speed();
  ASSERT_TRUE(first);
  EXPECT_GT(first->write_ns_per_byte, 0);
  SpillFile file("");
  const std::optional<TierSpeed> second = file.speed();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->write_ns_per_byte, first->write_ns_per_byte);
  EXPECT_EQ(second->read_ns_per_byte, first->read_ns_per_byte);
  EXPECT_EQ(second->each, first->each);
}

// Starts many writes, then many reads, and ends them in another order.
TEST_F(SpillFileTest, CopiesRunConcurrently) {
  SpillFile file("");
  std::mt19937 random(3);
  std::vector<std::vector<char>> written;
  const std::int64_t place = 3 * kMiB;
  for (unsigned round = 0; round < 4; ++round) {
    std::vector<std::size_t> order;
    for (unsigned i = 0; i < 12; ++i) {
      if (round == 0) {
        written.push_back(random_bytes(1 + static_cast<std::int64_t>(random() % (3U * kMiB)), i));
      }
      const std::vector<char>& bytes = written[i];
      file.begin_write(Bytes(i * place), bytes.data(),
                       Bytes(static_cast<std::int64_t>(bytes.size())));
      order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      ASSERT_TRUE(file.end_write(Bytes(static_cast<std::int64_t>(i) * place)));
    }
    std::vector<std::vector<char>> got(written.size());
    for (const std::size_t i : order) {
      got[i].resize(written[i].size());
      file.begin_read(got[i].data(), Bytes(static_cast<std::int64_t>(i) * place),
                      Bytes(static_cast<std::int64_t>(got[i].size())));
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      file.end_read(Bytes(static_cast<std::int64_t>(i) * place));
      EXPECT_TRUE(got[i] == written[i]);
    }
  }
}

// Injects a fault into every request of a write or read in turn, once and permanently.
TEST_F(SpillFileTest, AFaultIsReportedAndTheNextCopySucceeds) {
  const std::vector<char> bytes = random_bytes(5 * kMiB + 100, 5);
  const auto size = bytes.size();
  for (const Fault fault : {Fault::kError, Fault::kFull}) {
    for (int at = 1; at <= 6; ++at) {
      for (const bool for_good : {false, true}) {
        SpillFile file("", settings());
        plan_fault(fault, for_good, at);
        EXPECT_FALSE(write(file, 0, bytes));
        plan_fault(Fault::kNone);
        ASSERT_TRUE(write(file, 0, bytes));
        plan_fault(fault, for_good, at);
        EXPECT_THROW(read(file, 0, size), std::system_error);
        plan_fault(Fault::kNone);
        EXPECT_EQ(read(file, 0, size), bytes);
      }
    }
  }
}

TEST_F(SpillFileTest, AShortOrSlowCopyIsContinued) {
  const std::vector<char> bytes = random_bytes(3 * kMiB + 100, 6);
  for (const Fault fault : {Fault::kShort, Fault::kSlow, Fault::kBusy}) {
    for (int at = 1; at <= 4; ++at) {
      SpillFile file("", settings());
      plan_fault(fault, fault != Fault::kBusy, at);
      ASSERT_TRUE(write(file, 0, bytes));
      plan_fault(fault, fault != Fault::kBusy, at);
      EXPECT_EQ(read(file, 0, bytes.size()), bytes);
    }
  }
}

TEST_F(SpillFileTest, ChangedAndMissingBytesAreDetected) {
  const std::vector<char> bytes = random_bytes(2 * kMiB + 100, 7);
  for (int at = 1; at <= 3; ++at) {
    SpillFile file("", settings());
    ASSERT_TRUE(write(file, 0, bytes));
    plan_fault(Fault::kFlip, false, at);
    EXPECT_THROW(
        {
          try {
            read(file, 0, bytes.size());
          } catch (const std::runtime_error& error) {
            EXPECT_NE(std::string(error.what()).find("read back with other bits"),
                      std::string::npos);
            throw;
          }
        },
        std::runtime_error);
    plan_fault(Fault::kEnd, false, at);
    EXPECT_THROW(read(file, 0, bytes.size()), std::system_error);
    plan_fault(Fault::kNone);
    EXPECT_EQ(read(file, 0, bytes.size()), bytes);
  }
}

// The memory of a copy that never ends must be reusable.
TEST_F(SpillFileTest, ACopyThatNeverEndsTimesOut) {
  for (const bool writes : {true, false}) {
    const std::vector<char> bytes = random_bytes(2 * kMiB, 8);
    {
      SpillFile file("", settings(std::chrono::seconds(2)));
      ASSERT_TRUE(write(file, 0, bytes));
      plan.fail_pending = false;
      plan_fault(Fault::kNever, false, 2);
      if (writes) {
        EXPECT_FALSE(write(file, 4 * kMiB, bytes));
      } else {
        EXPECT_THROW(read(file, 0, bytes.size()), std::runtime_error);
      }
    }
    plan.fail_pending = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

TEST_F(SpillFileTest, AForkedChildCannotUseTheFileAndItsParentCan) {
  SpillFile file("");
  const std::vector<char> bytes = random_bytes(6 * kMiB, 9);
  ASSERT_TRUE(write(file, 0, bytes));
  file.begin_write(Bytes(8 * kMiB), bytes.data(), Bytes(static_cast<std::int64_t>(bytes.size())));
  std::vector<char> got(bytes.size());
  file.begin_read(got.data(), Bytes(0), Bytes(static_cast<std::int64_t>(got.size())));
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool right = !file.end_write(Bytes(8 * kMiB)) && !write(file, 16 * kMiB, bytes) &&
                   !file.holds(Bytes(0), bytes.data(), Bytes(6 * kMiB));
      try {
        file.end_read(Bytes(0));
        right = false;
      } catch (const std::runtime_error&) {
      }
      _exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(file.end_write(Bytes(8 * kMiB)));
  file.end_read(Bytes(0));
  EXPECT_EQ(got, bytes);
  EXPECT_EQ(read(file, 8 * kMiB, bytes.size()), bytes);
}

// From now on this process may not call io_uring_enter.
bool forbid_uring() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(code), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Blocking calls copy the rest, and nothing that was refused is done later.
TEST(UringIo, RefusedFromSomeTimeOn) {
  constexpr int kBuffers = 4;
  if (make_uring_io(kBuffers) == nullptr) {
    GTEST_SKIP() << "the system has no io_uring";
  }
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const std::unique_ptr<BlockIo> io = make_uring_io(kBuffers);
    const int file = memfd_create("recoup-test", 0);
    char written[kBuffers] = {'a', 'b', 'c', 'd'};
    char got[kBuffers] = {};
    io->write(0, file, &written[0], 1, 0);
    if (io->wait().bytes != 1 || !forbid_uring()) {
      _exit(2);
    }
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < kBuffers; ++i) {
        io->write(i, file, &written[i], 1, i);
      }
      for (int i = 0; i < kBuffers; ++i) {
        if (io->wait().bytes != 1) {
          _exit(3);
        }
      }
    }
    for (int i = 0; i < kBuffers; ++i) {
      io->read(i, file, &got[i], 1, i);
    }
    int buffers = 0;
    for (int i = 0; i < kBuffers; ++i) {
      const BlockIo::Done done = io->wait();
      buffers |= done.bytes == 1 ? 1 << done.buffer : 0;
    }
    _exit(buffers == 15 && std::equal(got, got + kBuffers, written) ? 0 : 4);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace recoup::detail
