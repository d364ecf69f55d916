// Reserved addresses, some of which are backed by memory.
#include "csrc/cuda/reservation.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

constexpr Bytes kGranule = 64_KiB;

Bytes granules(std::int64_t count) { return Bytes(count * kGranule.count()); }

class CudaReservation : public testing::Test {
 protected:
  ~CudaReservation() override { reservation_.check(); }

  // A kernel on the device's default stream.
  void fill(Bytes from, Bytes to, char content) {
    char* const base = reservation_.base();
    cuda_.launch({}, [=] { std::fill(base + from.count(), base + to.count(), content); });
  }
  bool holds(Bytes from, Bytes to, char content) {
    cuda_.synchronize_all();
    const char* const base = reservation_.base();
    return std::count(base + from.count(), base + to.count(), content) == (to - from).count();
  }

  FakeCuda cuda_{{.seed = 3, .memory = 64_MiB, .granularity = kGranule}};
  Reservation reservation_{cuda_, 0, 256_MiB - 1_B};
};

TEST_F(CudaReservation, BeginsWithoutMemory) {
  EXPECT_NE(reservation_.base(), nullptr);
  EXPECT_EQ(reservation_.size(), 256_MiB);
  EXPECT_EQ(reservation_.backed(), 0_B);
  EXPECT_TRUE(reservation_.back(0_B));
  reservation_.give_back(0_B, 256_MiB);
  EXPECT_EQ(cuda_.allocated(0), 0_B);
}

TEST_F(CudaReservation, BackedAddressesAreWritable) {
  ASSERT_TRUE(reservation_.back(100_KiB));
  EXPECT_EQ(reservation_.backed(), 128_KiB);
  EXPECT_EQ(cuda_.allocated(0), 128_KiB);
  EXPECT_EQ(cuda_.memory(0).free, 64_MiB - 128_KiB);
  fill(0_B, 128_KiB, 'a');
  EXPECT_TRUE(holds(0_B, 128_KiB, 'a'));
  // The addresses are backed already.
  ASSERT_TRUE(reservation_.back(128_KiB));
  ASSERT_TRUE(reservation_.back(1_B));
  EXPECT_EQ(cuda_.allocated(0), 128_KiB);
}

TEST_F(CudaReservation, GrowsInPlace) {
  ASSERT_TRUE(reservation_.back(1_MiB));
  fill(0_B, 1_MiB, 'a');
  ASSERT_TRUE(reservation_.back(63_MiB));
  EXPECT_EQ(reservation_.backed(), 63_MiB);
  fill(1_MiB, 63_MiB, 'b');
  EXPECT_TRUE(holds(0_B, 1_MiB, 'a'));
  EXPECT_TRUE(holds(1_MiB, 63_MiB, 'b'));
}

TEST_F(CudaReservation, ALargeReservationUsesFewChunks) {
  FakeCuda cuda{{.memory = 1_GiB, .granularity = 4_KiB}};
  Reservation reservation(cuda, 0, 256_MiB);
  ASSERT_TRUE(reservation.back(255_MiB));  // 65,280 granules
  EXPECT_LE(cuda.maps(), 512);
  EXPECT_GT(cuda.maps(), 500);
  reservation.check();
}

TEST_F(CudaReservation, AGrowingReservationUsesFewChunks) {
  FakeCuda cuda{{.memory = 1_GiB, .granularity = 4_KiB}};
  Reservation reservation(cuda, 0, 256_MiB);
  for (Bytes size = 4_KiB; size <= 256_MiB; size += size) {
    ASSERT_TRUE(reservation.back(size));
  }
  EXPECT_LE(cuda.maps(), 512 + 7 * 256);
  reservation.check();
}

TEST_F(CudaReservation, AShortageIsUndone) {
  ASSERT_TRUE(reservation_.back(1_MiB));
  fill(0_B, 1_MiB, 'a');
  const std::size_t maps = cuda_.maps();
  EXPECT_FALSE(reservation_.back(65_MiB));
  EXPECT_EQ(reservation_.backed(), 1_MiB);
  EXPECT_EQ(cuda_.allocated(0), 1_MiB);
  EXPECT_EQ(cuda_.maps(), maps);
  EXPECT_TRUE(holds(0_B, 1_MiB, 'a'));
  reservation_.check();
  EXPECT_TRUE(reservation_.back(64_MiB));
  EXPECT_TRUE(holds(0_B, 1_MiB, 'a'));
}

TEST_F(CudaReservation, ADriverFailureIsUndone) {
  ASSERT_TRUE(reservation_.back(1_MiB));
  reservation_.give_back(granules(3), granules(5));
  cuda_.fail_map_after(10);  // the first two maps fill the hole, the others come after it
  EXPECT_THROW(static_cast<void>(reservation_.back(4_MiB)), CudaError);
  EXPECT_EQ(reservation_.backed(), granules(14));
  EXPECT_EQ(cuda_.allocated(0), granules(14));
  reservation_.check();
  EXPECT_TRUE(reservation_.back(4_MiB));
  EXPECT_EQ(cuda_.allocated(0), 4_MiB);
}

TEST_F(CudaReservation, GivesBackWholeChunks) {
  ASSERT_TRUE(reservation_.back(granules(16)));
  fill(0_B, granules(16), 'a');
  // Parts of the chunks 2 and 6, and all chunks between them.
  reservation_.give_back(granules(2) + 1_B, granules(7) - 1_B);
  EXPECT_EQ(reservation_.backed(), granules(13));
  EXPECT_EQ(cuda_.allocated(0), granules(13));
  EXPECT_TRUE(holds(0_B, granules(3), 'a'));
  EXPECT_TRUE(holds(granules(6), granules(16), 'a'));
  // Less than a chunk, an empty range, and a reversed range.
  reservation_.give_back(granules(8) + 1_B, granules(9));
  reservation_.give_back(granules(8), granules(8));
  reservation_.give_back(granules(9), granules(8));
  EXPECT_EQ(reservation_.backed(), granules(13));

  // A hole above the requested end is not filled.
  ASSERT_TRUE(reservation_.back(granules(3)));
  EXPECT_EQ(reservation_.backed(), granules(13));
  ASSERT_TRUE(reservation_.back(granules(5)));
  EXPECT_EQ(reservation_.backed(), granules(15));
  ASSERT_TRUE(reservation_.back(granules(16)));
  fill(granules(3), granules(6), 'b');
  EXPECT_TRUE(holds(0_B, granules(3), 'a'));
  EXPECT_TRUE(holds(granules(3), granules(6), 'b'));
  EXPECT_TRUE(holds(granules(6), granules(16), 'a'));
}

TEST_F(CudaReservation, ReturnedMemoryIsAvailableToOthers) {
  ASSERT_TRUE(reservation_.back(64_MiB));
  EXPECT_EQ(cuda_.allocate(0, 32_MiB), nullptr);
  reservation_.give_back(32_MiB, 64_MiB);
  void* const other = cuda_.allocate(0, 32_MiB);
  ASSERT_NE(other, nullptr);
  EXPECT_FALSE(reservation_.back(64_MiB));
  EXPECT_EQ(reservation_.backed(), 32_MiB);
  cuda_.release(0, other);
  EXPECT_TRUE(reservation_.back(64_MiB));
}

TEST_F(CudaReservation, KernelsFinishBeforeTheirMemoryIsReturned) {
  ASSERT_TRUE(reservation_.back(1_MiB));
  fill(0_B, 1_MiB, 'a');
  ASSERT_EQ(cuda_.pending({}), 1);
  reservation_.give_back(0_B, 1_MiB);
  EXPECT_EQ(cuda_.pending({}), 0);
}

TEST_F(CudaReservation, DestructionReturnsAllMemory) {
  {
    Reservation other(cuda_, 0, 8_MiB);
    ASSERT_TRUE(other.back(8_MiB));
    other.give_back(1_MiB, 2_MiB);
    char* const base = other.base();
    cuda_.launch({}, [=] { std::fill_n(base, granules(1).count(), 'a'); });
    EXPECT_EQ(cuda_.allocated(0), 7_MiB);
    EXPECT_EQ(cuda_.reservations(), 2);
  }
  EXPECT_EQ(cuda_.allocated(0), 0_B);
  EXPECT_EQ(cuda_.reservations(), 1);
}

TEST_F(CudaReservation, BackingMoreThanItsAddressesThrows) {
  EXPECT_THROW(static_cast<void>(reservation_.back(256_MiB + 1_B)), InternalError);
  EXPECT_THROW(Reservation(cuda_, 0, 0_B), InternalError);
}

// Backs and returns random ranges while another reservation uses memory of the device, and compares
// them with an oracle that works granule by granule. Integers count granules.
class ReservedProgram {
 public:
  explicit ReservedProgram(std::uint64_t seed)
      : random_(seed), cuda_({.seed = seed, .memory = size(kMemory), .granularity = size(1)}) {}

  void step() {
    if (any(4) == 0) {
      others_.give_back(0_B, others_.size());
      ASSERT_TRUE(others_.back(size(any(kMemory - backed() + 1))));
    }
    if (any(2) == 0) {
      back(any(kAddresses + 1));
    } else {
      const std::int64_t from = any(size(kAddresses).count());
      give_back(Bytes(from), Bytes(from + any(size(kAddresses / 4).count())));
    }
    check();
  }
  // The numbers of calls of back() that succeeded and failed.
  [[nodiscard]] int backs() const { return backs_; }
  [[nodiscard]] int failures() const { return failures_; }

 private:
  static constexpr std::int64_t kAddresses = 2000;  // chunks have up to four granules
  static constexpr std::int64_t kMemory = 1200;

  static Bytes size(std::int64_t count) { return Bytes(count * 4096); }
  std::int64_t any(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  int& chunk_of(std::int64_t granule) { return chunk_of_[static_cast<std::size_t>(granule)]; }
  [[nodiscard]] std::int64_t backed() const {
    return kAddresses - std::count(chunk_of_.begin(), chunk_of_.end(), 0);
  }
  int& first_word(std::int64_t granule) {
    return *reinterpret_cast<int*>(reservation_.base() + size(granule).count());
  }

  void back(std::int64_t end) {
    const std::vector<int> before = chunk_of_;
    std::vector<std::int64_t> fresh;
    std::int64_t room = 0;  // granules left in the current chunk
    for (std::int64_t granule = 0; granule < end; ++granule) {
      if (chunk_of(granule) != 0) {
        room = 0;
        continue;
      }
      if (room == 0) {
        ++last_chunk_;
        room = (end + 511) / 512;
      }
      --room;
      chunk_of(granule) = last_chunk_;
      fresh.push_back(granule);
    }
    const bool fits = size(backed()) + others_.backed() <= size(kMemory);
    ++(fits ? backs_ : failures_);
    ASSERT_EQ(reservation_.back(end == 0 ? 0_B : size(end) - Bytes(any(4096))), fits);
    if (!fits) {
      chunk_of_ = before;
      return;
    }
    for (const std::int64_t granule : fresh) {
      cuda_.launch({}, [word = &first_word(granule), chunk = chunk_of(granule)] { *word = chunk; });
    }
  }
  void give_back(Bytes from, Bytes to) {
    reservation_.give_back(from, to);
    std::set<int> stay;
    for (std::int64_t granule = 0; granule < kAddresses; ++granule) {
      if (size(granule) < from || size(granule + 1) > to) {
        stay.insert(chunk_of(granule));
      }
    }
    for (int& chunk : chunk_of_) {
      chunk = stay.contains(chunk) ? chunk : 0;
    }
  }
  void check() {
    reservation_.check();
    ASSERT_EQ(reservation_.backed(), size(backed()));
    ASSERT_EQ(cuda_.allocated(0), size(backed()) + others_.backed());
    cuda_.synchronize_all();
    for (std::int64_t granule = 0; granule < kAddresses; ++granule) {
      if (chunk_of(granule) != 0) {
        ASSERT_EQ(first_word(granule), chunk_of(granule));
      }
    }
  }

  std::mt19937_64 random_;
  FakeCuda cuda_;
  Reservation reservation_{cuda_, 0, size(kAddresses)};
  Reservation others_{cuda_, 0, size(kMemory)};
  std::vector<int> chunk_of_ = std::vector<int>(kAddresses, 0);  // by granule; 0: not backed
  int last_chunk_ = 0;
  int backs_ = 0;
  int failures_ = 0;
};

TEST(CudaReservationRandom, AgreesWithAListOfGranules) {
  int backs = 0;
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    ReservedProgram program(seed);
    for (int step = 0; step < 100; ++step) {
      ASSERT_NO_FATAL_FAILURE(program.step()) << "seed " << seed << ", step " << step;
    }
    backs += program.backs();
    failures += program.failures();
  }
  EXPECT_GT(backs, 100);
  EXPECT_GT(failures, 100);
}

// Tests of the fake device itself.
class FakeCudaMaps : public testing::Test {
 protected:
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  FakeCuda cuda_{{.devices = 2, .granularity = kGranule}};
  char* base_ = static_cast<char*>(cuda_.reserve(0, granules(8)));
};

TEST_F(FakeCudaMaps, RefusesWhatTheDriverRefuses) {
  ASSERT_TRUE(cuda_.map(0, base_ + kGranule.count(), granules(2)));
  EXPECT_THROW(cuda_.map(0, base_, granules(2)), InternalError);
  EXPECT_THROW(cuda_.map(0, base_ + granules(2).count(), granules(1)), InternalError);
  EXPECT_THROW(cuda_.map(0, base_ + granules(7).count(), granules(2)), InternalError);
  EXPECT_THROW(cuda_.map(0, base_ + 4096, granules(1)), InternalError);
  EXPECT_THROW(cuda_.map(0, base_, 4_KiB), InternalError);
  EXPECT_THROW(cuda_.map(1, base_, granules(1)), InternalError);
  int here = 0;
  EXPECT_THROW(cuda_.map(0, &here, granules(1)), InternalError);
  EXPECT_EQ(cuda_.allocated(0), granules(2));
  cuda_.unmap(0, base_ + kGranule.count(), granules(2));
  cuda_.unreserve(0, base_, granules(8));
  EXPECT_EQ(cuda_.allocated(0), 0_B);
}

using FakeCudaMapsDeathTest = FakeCudaMaps;

TEST_F(FakeCudaMapsDeathTest, AccessWithoutMemoryCrashes) {
  EXPECT_DEATH(*static_cast<volatile char*>(base_) = 'a', "");
}

TEST_F(FakeCudaMapsDeathTest, MapsAreRemovedWhole) {
  ASSERT_TRUE(cuda_.map(0, base_, granules(2)));
  EXPECT_DEATH(cuda_.unmap(0, base_, granules(1)), "was not one map");
  EXPECT_DEATH(cuda_.unreserve(0, base_, granules(8)), "or mapped");
}

}  // namespace
}  // namespace recoup::detail::cuda
