// Copies to and from the host, concurrent with a program whose streams run late.
#include "csrc/cuda/host_copies.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

#include "csrc/cuda/error.h"
#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

constexpr std::size_t kSlot = 4096;
constexpr std::size_t kSlots = 8;

class CudaHostCopies : public testing::Test {
 protected:
  explicit CudaHostCopies(FakeCuda::Options options = {.seed = 3})
      : cuda_(options),
        arena_(static_cast<char*>(cuda_.allocate(0, Bytes(kSlots * kSlot)))),
        pinned_(static_cast<char*>(cuda_.allocate_pinned(Bytes(kSlots * kSlot)))) {}
  ~CudaHostCopies() override {
    cuda_.synchronize_all();
    cuda_.release_pinned(pinned_);
    cuda_.release(0, arena_);
  }

  [[nodiscard]] static Range range(std::size_t slot) {
    return {.offset = Bytes(static_cast<std::int64_t>(slot * kSlot)), .size = Bytes(kSlot)};
  }
  char* device(std::size_t slot) { return arena_ + slot * kSlot; }
  char* host(std::size_t slot) { return pinned_ + slot * kSlot; }
  // An op of the program that writes a slot.
  void write(std::size_t slot, char value, Stream stream) {
    order_.take(range(slot), stream);
    cuda_.launch(stream, [to = device(slot), value] { std::memset(to, value, kSlot); });
  }

  FakeCuda cuda_;
  char* arena_;
  char* pinned_;
  StreamOrder order_{cuda_};
};

TEST_F(CudaHostCopies, CopyOutAndInConcurrentlyWithTheProgram) {
  HostCopies copies(cuda_, 0);
  write(0, 7, {});
  const auto out = copies.copy_out(order_, range(0), device(0), host(0));
  EXPECT_FALSE(copies.done(out));
  write(0, 9, {});  // the slot is reused at once
  EXPECT_EQ(cuda_.synchronizations(), 0) << "no host wait";
  copies.wait(out);
  EXPECT_TRUE(copies.done(out));
  EXPECT_EQ(host(0)[kSlot - 1], 7);
  const auto in = copies.copy_in(order_, range(1), device(1), host(0));
  copies.check(2);
  copies.wait(in);
  EXPECT_EQ(device(1)[kSlot - 1], 7);
  cuda_.synchronize_all();
  EXPECT_EQ(device(0)[0], 9);
  copies.release(out);
  copies.release(in);
  copies.check(0);
}

TEST_F(CudaHostCopies, ReleaseAllResources) {
  {
    HostCopies copies(cuda_, 0);
    write(0, 1, {});
    copies.release(copies.copy_out(order_, range(0), device(0), host(0)));
    copies.release(copies.copy_out(order_, range(0), device(0), host(1)));
  }
  EXPECT_EQ(cuda_.destroyed_streams(), 2);
  EXPECT_EQ(host(1)[0], 1) << "the destructor waits for the copy";
}

TEST_F(CudaHostCopies, ADriverFailureStartsNoCopy) {
  HostCopies copies(cuda_, 0);
  write(0, 1, cuda_.new_stream());
  cuda_.fail_records(1);
  EXPECT_THROW((void)copies.copy_out(order_, range(0), device(0), host(0)), CudaError);
  copies.check(0);
}

// Slots are written, copied out, reused, copied back and read on two streams of the program.
// Returns the number of reads that differ from those of a plain interpreter.
int wrong_reads(std::uint64_t seed, std::int64_t forget_each) {
  FakeCuda cuda({.seed = seed, .forget_each = forget_each});
  auto* const arena = static_cast<char*>(cuda.allocate(0, Bytes(kSlots * kSlot)));
  auto* const pinned = static_cast<char*>(cuda.allocate_pinned(Bytes(kSlots * kSlot)));
  int wrong = 0;
  {
    StreamOrder order(cuda);
    HostCopies copies(cuda, 0);
    const Stream streams[] = {{}, cuda.new_stream()};
    std::vector<char> on_device(kSlots, 0);
    std::vector<char> on_host(kSlots, 0);
    std::mt19937_64 random(seed);
    std::deque<HostCopies::Ticket> held;
    const auto range = [](std::size_t slot) {
      return Range{.offset = Bytes(static_cast<std::int64_t>(slot * kSlot)), .size = Bytes(kSlot)};
    };
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      std::memset(arena + slot * kSlot, 0, kSlot);
      std::memset(pinned + slot * kSlot, 0, kSlot);
    }
    for (int step = 0; step < 400; ++step) {
      const std::size_t slot = random() % kSlots;
      char* const here = arena + slot * kSlot;
      char* const there = pinned + slot * kSlot;
      const Stream stream = streams[random() % 2];
      switch (random() % 4) {
        case 0: {
          const char value = static_cast<char>(random());
          order.take(range(slot), stream);
          cuda.launch(stream, [here, value] { std::memset(here, value, kSlot); });
          on_device[slot] = value;
          break;
        }
        case 1:
          order.take(range(slot), stream);
          cuda.launch(stream, [&wrong, here, want = on_device[slot]] {
            wrong += here[0] != want || here[kSlot - 1] != want ? 1 : 0;
          });
          break;
        case 2:
          held.push_back(copies.copy_out(order, range(slot), here, there));
          on_host[slot] = on_device[slot];
          copies.wait(held.back());  // before the host memory is reused
          wrong += there[0] != on_host[slot] ? 1 : 0;
          break;
        default:
          held.push_back(copies.copy_in(order, range(slot), here, there));
          on_device[slot] = on_host[slot];
          if (random() % 2 == 0) {
            copies.wait(held.back());
          }
          break;
      }
      while (!held.empty() && copies.release_if_done(order, held.front())) {
        held.pop_front();
      }
      order.check();
      copies.check(held.size());
      cuda.run(static_cast<int>(random() % 4));
    }
    cuda.synchronize_all();
    for (const HostCopies::Ticket ticket : held) {
      copies.release(ticket);
    }
    copies.check(0);
  }
  cuda.release_pinned(pinned);
  cuda.release(0, arena);
  return wrong;
}

TEST(CudaHostCopiesRandom, EveryReadReturnsTheWrittenBytes) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    // A slot may be copied in again only after its copy out is done. Each slot has one place on the
    // host, and both directions are ordered by the slot's range.
    EXPECT_EQ(wrong_reads(seed, 0), 0) << "seed " << seed;
  }
}

TEST(CudaHostCopiesRandom, AMissingWaitIsDetected) {
  int noticed = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    noticed += wrong_reads(seed, 5) > 0 ? 1 : 0;
  }
  EXPECT_GT(noticed, 50);
}

}  // namespace
}  // namespace recoup::detail::cuda
