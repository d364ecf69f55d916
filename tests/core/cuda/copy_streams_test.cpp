// Which accesses precede which, by the waits that were issued, with copies to and from the host.
#include "csrc/cuda/copy_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "csrc/cuda/error.h"
#include "csrc/cuda/host_copies.h"
#include "csrc/cuda/stream_order.h"
#include "tests/core/cuda/clock_cuda.h"

namespace recoup::detail::cuda {
namespace {

class CudaCopyStreams : public testing::Test {
 protected:
  CudaCopyStreams() {
    cuda_.on_copy = [this](Stream stream) { last_copy_ = cuda_.access(stream); };
    order_.take(whole_, one_);
    order_.take(whole_, two_);
  }
  ~CudaCopyStreams() override { order_.check(); }

  struct Copy {
    HostCopies::Ticket ticket;
    std::int64_t access = 0;
  };
  static Range slot(std::int64_t index) {
    return {.offset = Bytes(index * 512), .size = Bytes(512)};
  }
  Copy copy_out(std::int64_t index) {
    const HostCopies::Ticket ticket = copies_.copy_out(order_, slot(index), nullptr, nullptr);
    return {.ticket = ticket, .access = last_copy_};
  }
  bool follows(Stream stream, const Copy& copy) {
    return cuda_.follows(stream, copy.ticket.stream, copy.access);
  }

  ClockCuda cuda_;
  HostCopies copies_{cuda_, 0};
  StreamOrder order_{cuda_};
  Stream one_ = cuda_.new_stream();
  Stream two_ = cuda_.new_stream();
  Range whole_{.offset = 0_B, .size = 8_KiB};
  std::int64_t last_copy_ = 0;
};

TEST_F(CudaCopyStreams, AUserWaitsForTheCopyOfItsBytesOnly) {
  const Copy first = copy_out(0);
  const Copy second = copy_out(1);
  order_.use(slot(0), one_);
  EXPECT_TRUE(follows(one_, first));
  EXPECT_FALSE(follows(one_, second));
  order_.take(slot(0), two_);
  EXPECT_TRUE(follows(two_, first));
  EXPECT_FALSE(follows(two_, second));
}

TEST_F(CudaCopyStreams, AWaitIncludesEarlierCopies) {
  const Copy first = copy_out(0);
  const Copy second = copy_out(1);
  const Copy third = copy_out(2);
  order_.use(slot(1), one_);
  const std::int64_t waits = order_.waits();
  order_.use(slot(0), one_);
  order_.take(slot(1), one_);
  EXPECT_EQ(order_.waits(), waits);
  EXPECT_TRUE(follows(one_, first) && follows(one_, second) && !follows(one_, third));
  order_.use(slot(0), two_);
  order_.use(slot(2), one_);
  EXPECT_EQ(order_.waits(), waits + 2) << "another stream, and a later copy";
}

TEST_F(CudaCopyStreams, OneWaitForSeveralCopies) {
  copy_out(0);
  const Copy last = copy_out(1);
  const std::int64_t waits = order_.waits();
  order_.use({.offset = 0_B, .size = 1024_B}, one_);
  EXPECT_EQ(order_.waits(), waits + 1);
  EXPECT_TRUE(follows(one_, last));
}

TEST_F(CudaCopyStreams, ACopyThatIsDoneNeedsNoWait) {
  const Copy first = copy_out(0);
  const Copy second = copy_out(1);
  EXPECT_FALSE(copies_.release_if_done(order_, first.ticket));
  cuda_.is_over = [] { return true; };
  EXPECT_TRUE(copies_.release_if_done(order_, first.ticket));
  const std::int64_t waits = order_.waits();
  order_.use(slot(0), one_);
  EXPECT_EQ(order_.waits(), waits);
  EXPECT_TRUE(follows(one_, first));
  order_.use(slot(1), one_);
  EXPECT_EQ(order_.waits(), waits + 1);
  EXPECT_TRUE(follows(one_, second));
}

TEST_F(CudaCopyStreams, ASecondCopyOfTheSameBytesIsWaitedFor) {
  copy_out(0);
  order_.use(slot(0), one_);
  copy_out(0);
  const Copy last = copy_out(0);
  order_.use(slot(0), one_);
  EXPECT_TRUE(follows(one_, last));
}

// The tickets are released before the copies are done, so their events are recorded again.
TEST_F(CudaCopyStreams, AnEventMayBeRecordedAgain) {
  std::vector<Copy> out;
  for (std::int64_t index = 0; index < 4; ++index) {
    out.push_back(copy_out(index));
    copies_.release(out.back().ticket);
    copies_.release(copies_.copy_in(order_, slot(8 + index), nullptr, nullptr));
    order_.check();
  }
  for (std::int64_t index = 0; index < 4; ++index) {
    order_.use(slot(index), one_);
    EXPECT_TRUE(follows(one_, out[static_cast<std::size_t>(index)]));
  }
}

TEST_F(CudaCopyStreams, ACopyWithoutAnEventIsWaitedFor) {
  const Copy first = copy_out(0);
  order_.take(slot(1), one_);
  cuda_.fail_after(3);  // the wait for slot 1, the copy, its event
  EXPECT_THROW((void)copy_out(1), CudaError);
  const Copy failed{.ticket = first.ticket, .access = last_copy_};
  EXPECT_GT(failed.access, first.access);
  order_.use(slot(1), one_);
  EXPECT_TRUE(follows(one_, failed));
  copy_out(2);
  order_.use(slot(1), two_);
  EXPECT_TRUE(follows(two_, failed));
}

TEST_F(CudaCopyStreams, TheOtherDirectionWaitsOnce) {
  const Copy out = copy_out(0);
  const std::int64_t waits = order_.waits();
  copies_.order_other_after(order_, out.ticket);
  copies_.order_other_after(order_, out.ticket);
  EXPECT_EQ(order_.waits(), waits + 1);
  const HostCopies::Ticket in = copies_.copy_in(order_, slot(0), nullptr, nullptr);
  EXPECT_EQ(order_.waits(), waits + 1);
  EXPECT_TRUE(follows(in.stream, out));
}

TEST_F(CudaCopyStreams, TakingTakenBytesNeedsNothing) {
  order_.take(slot(0), one_);
  const std::int64_t records = cuda_.records();
  order_.take(slot(0), one_);
  EXPECT_EQ(cuda_.records(), records);
  order_.use(slot(0), two_);
  order_.take(slot(0), one_);
  EXPECT_EQ(cuda_.records(), records + 2) << "the user, and then its work";
}

// ---- random programs ----

// Ranges are used, taken and copied on several streams. For each byte, all earlier accesses of
// other streams must precede an access if one of the two is the engine's.
class OrderedProgram {
 public:
  OrderedProgram(std::uint64_t seed, std::int64_t forgotten) : random_(seed) {
    cuda_.is_over = [this] { return random_() % 12 == 0; };
    cuda_.on_copy = [this](Stream stream) { access(stream, true); };
    cuda_.forget_after(forgotten);
    for (int i = 0; i < 3; ++i) {
      streams_.push_back(cuda_.new_stream());
    }
  }

  // Returns the number of pairs of accesses without an order.
  int run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (random_() % 16 == 0) {
        cuda_.fail_after(1 + static_cast<int>(random_() % 3));
      }
      try {
        step();
      } catch (const CudaError&) {
        ++failures_;
      }
      order_.check();
      copies_.check(pending_[0].size() + pending_[1].size());
    }
    return races_;
  }
  [[nodiscard]] std::int64_t waits() const { return cuda_.waits(); }
  [[nodiscard]] int failures() const { return failures_; }

 private:
  static constexpr std::int64_t kBytes = 64;
  struct Access {
    Stream stream;
    std::int64_t number = 0;
    bool is_engine = false;
  };

  void step() {
    const std::int64_t begin = static_cast<std::int64_t>(random_() % kBytes);
    const std::int64_t size = 1 + static_cast<std::int64_t>(random_() % 8);
    range_ = {.offset = Bytes(begin), .size = Bytes(std::min(size, kBytes - begin))};
    const Stream stream = streams_[random_() % streams_.size()];
    const std::size_t way = random_() % 2;
    switch (random_() % 5) {
      case 0:
        order_.take(range_, stream);
        return access(stream, true);
      case 1:
      case 2:
        order_.use(range_, stream);
        return access(stream, false);
      case 3:
        if (!pending_[1 - way].empty() && random_() % 4 == 0) {
          copies_.order_other_after(order_, pending_[1 - way].back());
        }
        pending_[way].push_back(way == 0 ? copies_.copy_out(order_, range_, nullptr, nullptr)
                                         : copies_.copy_in(order_, range_, nullptr, nullptr));
        return;
      default:
        return release(pending_[way]);
    }
  }

  void access(Stream stream, bool is_engine) {
    const std::int64_t number = cuda_.access(stream);
    for (Bytes at = range_.offset; at < range_.offset + range_.size; at += Bytes(1)) {
      std::vector<Access>& earlier = accesses_[static_cast<std::size_t>(at.count())];
      for (const Access& each : earlier) {
        races_ += (is_engine || each.is_engine) && each.stream != stream &&
                          !cuda_.follows(stream, each.stream, each.number)
                      ? 1
                      : 0;
      }
      earlier.push_back({.stream = stream, .number = number, .is_engine = is_engine});
    }
  }

  // Rarely before the copy is done.
  void release(std::deque<HostCopies::Ticket>& pending) {
    while (!pending.empty() && copies_.release_if_done(order_, pending.front())) {
      pending.pop_front();
    }
    if (!pending.empty() && random_() % 8 == 0) {
      copies_.release(pending.front());
      pending.pop_front();
    }
  }

  std::mt19937_64 random_;
  ClockCuda cuda_;
  HostCopies copies_{cuda_, 0};
  StreamOrder order_{cuda_};
  std::vector<Stream> streams_;
  std::deque<HostCopies::Ticket> pending_[2];  // by direction
  Range range_;                                // of the current step
  std::vector<Access> accesses_[kBytes];
  int races_ = 0;
  int failures_ = 0;
};

TEST(CudaCopyStreamsRandom, AccessesOfTheEngineAreOrdered) {
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    OrderedProgram program(seed, 0);
    EXPECT_EQ(program.run(150), 0) << "seed " << seed;
    failures += program.failures();
  }
  EXPECT_GT(failures, 300);
}

// Some waits are implied by others: the awaited stream was waited for by one that is waited for
// too.
TEST(CudaCopyStreamsRandom, AMissingWaitIsDetected) {
  int noticed = 0;
  constexpr int kRuns = 300;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    OrderedProgram program(seed, 1 + static_cast<std::int64_t>(seed % 40));
    noticed += program.run(150) > 0 ? 1 : 0;
    EXPECT_GE(program.waits(), 40);
  }
  EXPECT_GT(noticed, kRuns / 3);
}

}  // namespace
}  // namespace recoup::detail::cuda
