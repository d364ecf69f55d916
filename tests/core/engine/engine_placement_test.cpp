// Where results go in a free block: cheap ones at one end, expensive ones at the other.
#include <gtest/gtest.h>

#include "csrc/engine/base/placement.h"
#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kBudget = 64_KiB;
constexpr Nanoseconds kDear{1'000'000};
constexpr Nanoseconds kCheap{1000};

TEST(EnginePlacement, EndsAreByTheDensityOfTheOp) {
  Placer placer(Placement::kTwoEnded, kBudget);
  const auto zone_of = [&](std::string_view op) {
    placer.begin(op);
    return placer.zone(1_KiB);
  };
  EXPECT_EQ(zone_of("conv"), Zone::kHigh);  // nothing is known of it yet
  placer.learn("conv", kDear, 1_KiB);
  placer.learn("relu", kCheap, 1_KiB);
  EXPECT_EQ(zone_of("conv"), Zone::kLow);
  EXPECT_EQ(zone_of("relu"), Zone::kHigh);
  EXPECT_EQ(zone_of("pool"), Zone::kHigh);
  EXPECT_EQ(zone_of(""), Zone::kHigh);
  // The same time for a thousand times the bytes.
  placer.learn("linear", kDear, 1000_KiB);
  EXPECT_EQ(zone_of("linear"), Zone::kHigh);
  placer.begin("relu");
  EXPECT_EQ(placer.zone(Bytes(kBudget.count() / 512)), Zone::kLow);  // small
}

TEST(EnginePlacement, AReplayIsPlacedByItsOwnCost) {
  Placer placer(Placement::kTwoEnded, kBudget);
  placer.learn("mean", Nanoseconds(10'000), 1_KiB);
  placer.begin_replay(kDear, 1_KiB);
  EXPECT_EQ(placer.zone(1_KiB), Zone::kLow);
  placer.begin_replay(kCheap, 1_KiB);
  EXPECT_EQ(placer.zone(1_KiB), Zone::kHigh);
}

TEST(EnginePlacement, BestFitTellsNothingApart) {
  Placer placer(Placement::kBestFit, kBudget);
  placer.learn("conv", kDear, 1_KiB);
  placer.learn("relu", kCheap, 1_KiB);
  placer.begin("conv");
  EXPECT_EQ(placer.zone(1_KiB), Zone::kHigh);
}

//   |x!|c1|c2|c3|        free        |r3|r2|r1|
TEST(EnginePlacement, CheapResultsLieTogether) {
  Options options;
  options.budget = kBudget;
  options.small_result_bytes = 64_B;
  options.placement = Placement::kTwoEnded;
  Program p(options);
  const Tensor x = p.source(1_KiB);
  const auto make = [&](const char* name, Nanoseconds cost) {
    return p.run({.arguments = {{x}}, .fresh = {1_KiB}, .cost = cost, .name = name}).front();
  };
  make("conv", kDear);  // they are learned
  make("relu", kCheap);
  std::vector<Tensor> dear;
  std::vector<Tensor> cheap;
  for (int i = 0; i < 3; ++i) {
    dear.push_back(make("conv", kDear));
    cheap.push_back(make("relu", kCheap));
  }
  const auto at = [&](Tensor tensor) { return p.storage(tensor).offset->count(); };
  for (int i = 1; i < 3; ++i) {
    const auto now = static_cast<std::size_t>(i);
    EXPECT_EQ(at(dear[now]), at(dear[now - 1]) + 1024);
    EXPECT_EQ(at(cheap[now]), at(cheap[now - 1]) - 1024);
  }
  p.check();
}

}  // namespace
}  // namespace recoup::detail
