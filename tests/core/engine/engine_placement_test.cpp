// Placement within a free block: cheap results at one end, expensive results at the other.
#include <gtest/gtest.h>

#include "csrc/engine/base/placement.h"
#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kBudget = 64_KiB;
constexpr Nanoseconds kExpensive{1'000'000};
constexpr Nanoseconds kCheap{1000};

TEST(EnginePlacement, TheEndIsChosenByCostPerByte) {
  Placer placer(Placement::kTwoEnded, kBudget);
  const auto zone_of = [&](std::string_view op) {
    placer.begin(op);
    return placer.zone(1_KiB);
  };
  EXPECT_EQ(zone_of("conv"), Zone::kHigh);  // its cost is not known yet
  placer.learn("conv", kExpensive, 1_KiB);
  placer.learn("relu", kCheap, 1_KiB);
  EXPECT_EQ(zone_of("conv"), Zone::kLow);
  EXPECT_EQ(zone_of("relu"), Zone::kHigh);
  EXPECT_EQ(zone_of("pool"), Zone::kHigh);
  EXPECT_EQ(zone_of(""), Zone::kHigh);
  // The same cost for a thousand times the bytes.
  placer.learn("linear", kExpensive, 1000_KiB);
  EXPECT_EQ(zone_of("linear"), Zone::kHigh);
  placer.begin("relu");
  EXPECT_EQ(placer.zone(Bytes(kBudget.count() / 512)), Zone::kLow);  // small
}

TEST(EnginePlacement, AReplayIsPlacedByItsCost) {
  Placer placer(Placement::kTwoEnded, kBudget);
  placer.learn("mean", Nanoseconds(10'000), 1_KiB);
  placer.begin_replay(kExpensive, 1_KiB);
  EXPECT_EQ(placer.zone(1_KiB), Zone::kLow);
  placer.begin_replay(kCheap, 1_KiB);
  EXPECT_EQ(placer.zone(1_KiB), Zone::kHigh);
}

TEST(EnginePlacement, BestFitIgnoresCosts) {
  Placer placer(Placement::kBestFit, kBudget);
  placer.learn("conv", kExpensive, 1_KiB);
  placer.learn("relu", kCheap, 1_KiB);
  placer.begin("conv");
  EXPECT_EQ(placer.zone(1_KiB), Zone::kHigh);
}

// |x!|c1|c2|c3|        free        |r3|r2|r1|
TEST(EnginePlacement, CheapResultsAreAdjacent) {
  Options options;
  options.budget = kBudget;
  options.small_result_bytes = 64_B;
  options.placement = Placement::kTwoEnded;
  Program p(options);
  const Tensor x = p.source(1_KiB);
  const auto make = [&](const char* name, Nanoseconds cost) {
    return p.run({.arguments = {{x}}, .fresh = {1_KiB}, .cost = cost, .name = name}).front();
  };
  make("conv", kExpensive);  // so that the costs are learned
  make("relu", kCheap);
  std::vector<Tensor> expensive;
  std::vector<Tensor> cheap;
  for (int i = 0; i < 3; ++i) {
    expensive.push_back(make("conv", kExpensive));
    cheap.push_back(make("relu", kCheap));
  }
  const auto at = [&](Tensor tensor) { return p.storage(tensor).offset->count(); };
  for (int i = 1; i < 3; ++i) {
    const auto now = static_cast<std::size_t>(i);
    EXPECT_EQ(at(expensive[now]), at(expensive[now - 1]) + 1024);
    EXPECT_EQ(at(cheap[now]), at(cheap[now - 1]) - 1024);
  }
  p.check();
}

}  // namespace
}  // namespace recoup::detail
