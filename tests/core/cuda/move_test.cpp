// Compares copies within device memory with memmove.
#include "csrc/cuda/move.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/core/cuda/fake_cuda.h"

namespace recoup::detail::cuda {
namespace {

TEST(CudaMove, IsMemmove) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto below = [&](std::size_t bound) { return random() % bound; };
    std::vector<unsigned char> memory(1 + below(300));
    std::iota(memory.begin(), memory.end(), static_cast<unsigned char>(0));
    const std::size_t size = 1 + below(memory.size());
    const std::size_t from = below(memory.size() - size + 1);
    const std::size_t to = below(memory.size() - size + 1);
    std::vector<unsigned char> want = memory;
    std::memmove(&want[to], &want[from], size);
    std::vector<unsigned char> room(1 + below(64));
    FakeCuda cuda({.seed = static_cast<std::uint64_t>(round)});
    move(cuda, cuda.new_stream(), &memory[to], &memory[from],
         Bytes(static_cast<std::int64_t>(size)),
         {.memory = room.data(), .size = Bytes(static_cast<std::int64_t>(room.size()))});
    cuda.synchronize_all();
    ASSERT_EQ(memory, want) << "round " << round << ": " << size << " bytes from " << from << " to "
                            << to << " through " << room.size();
  }
}

// A move by one byte: non-overlapping parts would need as many copies as there are bytes.
TEST(CudaMove, AShortDistanceDoesNotNeedManyCopies) {
  std::vector<char> memory(1001);
  std::vector<char> room(100);
  FakeCuda cuda({});
  move(cuda, {}, &memory[1], memory.data(), 1000_B, {.memory = room.data(), .size = 100_B});
  EXPECT_EQ(cuda.pending({}), 20);
}

}  // namespace
}  // namespace recoup::detail::cuda
