// The rules of the DTR authors' simulator, in hand-written programs.
// tests/python/offline/test_dtr.py compares results on their logs with their figures.
#include "recoup/offline/dtr.h"

#include <gtest/gtest.h>

#include <string>

namespace recoup {
namespace {

using Status = SimulationResult::Status;
using Tensors = std::vector<DtrTensorId>;

Nanoseconds ns(std::int64_t count) { return Nanoseconds(count); }

// Adds an op with one result.
DtrTensorId make(DtrProgram& program, std::int64_t cost, std::int64_t size,
                 const Tensors& arguments = {}) {
  const DtrOutput output{.size = Bytes(size), .alias = -1};
  return program.add_op("make", ns(cost), arguments, {&output, 1}).front();
}

DtrTensorId view(DtrProgram& program, std::int64_t cost, DtrTensorId of) {
  const DtrOutput output{.size = 0_B, .alias = 0};
  return program.add_op("view", ns(cost), {of}, {&output, 1}).front();
}

SimulationResult run(const DtrProgram& program, std::string_view policy, std::int64_t budget) {
  return simulate_dtr(program, policy, Bytes(budget), 0);
}

// The cost of replays if `kept` is needed at the end. Costs are chosen so that the sum tells which
// ops were replayed.
std::int64_t replay_cost(DtrProgram program, std::string_view policy, std::int64_t budget,
                         DtrTensorId kept) {
  program.keep(kept);
  const SimulationResult result = run(program, policy, budget);
  EXPECT_EQ(result.status, Status::kOk) << result.reason;
  return result.replay_cost.count();
}

TEST(DtrSimulator, TheLastOfEqualScoresIsEvicted) {
  DtrProgram program;
  const DtrTensorId a = make(program, 3, 10);
  const DtrTensorId b = make(program, 4, 10);
  make(program, 1, 10);
  EXPECT_EQ(replay_cost(program, "largest", 20, a), 0);
  EXPECT_EQ(replay_cost(program, "largest", 20, b), 4);
}

TEST(DtrSimulator, AReadMovesACandidateToTheEnd) {
  DtrProgram program;
  const DtrTensorId a = make(program, 3, 10);
  const DtrTensorId b = make(program, 4, 10);
  make(program, 1, 0, {a});  // size 0: an infinite score
  make(program, 1, 10);
  EXPECT_EQ(replay_cost(program, "largest", 20, a), 3);
  EXPECT_EQ(replay_cost(program, "largest", 20, b), 0);
}

TEST(DtrSimulator, ZeroStalenessIsAnInfiniteScore) {
  DtrProgram program;
  const DtrTensorId a = make(program, 2, 10);
  const DtrTensorId b = make(program, 1, 10);  // cheaper, but just made
  make(program, 1, 10);
  EXPECT_EQ(replay_cost(program, "dtr-local", 20, a), 2);
  EXPECT_EQ(replay_cost(program, "dtr-local-no-staleness", 20, b), 1);
}

TEST(DtrSimulator, TheFirstScoreOfZeroIsEvicted) {
  DtrProgram program;
  const DtrTensorId a = make(program, 0, 10);
  make(program, 0, 10);
  make(program, 1, 10);
  program.keep(a);
  EXPECT_EQ(run(program, "dtr-local-no-staleness", 20).stats.replays, 1);
}

TEST(DtrSimulator, ConstantsAreNeverFreed) {
  DtrProgram program;
  program.release(program.add_constant(10_B));
  make(program, 1, 10);
  EXPECT_EQ(program.peak(), 10_B);  // the peak includes them
  EXPECT_EQ(program.op_count(), 1);
  const SimulationResult result = run(program, "dtr", 19);
  EXPECT_EQ(result.status, Status::kOutOfBudget);
  EXPECT_EQ(result.reason,
            "make needs 10 bytes; 10 bytes of a budget of 19 bytes cannot be evicted");
  EXPECT_EQ(result.ops, 0);
  EXPECT_EQ(run(program, "dtr", 20).stats.resident_bytes, 20);
}

TEST(DtrSimulator, AStorageWithoutHoldersIsEvictedAndKeepsItsLineage) {
  DtrProgram program;
  const DtrTensorId a = make(program, 3, 10);
  const DtrTensorId b = make(program, 5, 10, {a});
  program.release(a);
  make(program, 1, 20);
  SimulationResult result = run(program, "dtr", 30);
  EXPECT_EQ(result.stats.drops, 1);
  EXPECT_EQ(result.stats.evictions, 0);
  EXPECT_EQ(result.stats.peak_bytes, 30);
  program.keep(b);
  result = run(program, "dtr-only-cost", 20);  // the third op evicts b
  EXPECT_EQ(result.replay_cost, ns(8));
  EXPECT_EQ(result.stats.replay_depth_max, 2);
  EXPECT_EQ(result.stats.resident_bytes, 20);  // a is replayed and stays, although it has no holder
}

TEST(DtrSimulator, AViewIsReplayedAndCountsForItsStorage) {
  DtrProgram program;
  const DtrTensorId a = make(program, 5, 10);
  const DtrTensorId v = view(program, 2, a);
  program.release(a);  // the view holds the storage
  const DtrTensorId b = make(program, 6, 10);
  make(program, 1, 10);
  EXPECT_EQ(replay_cost(program, "dtr-local-only-cost", 20, v), 0);  // 5 + 2 against 6
  EXPECT_EQ(replay_cost(program, "dtr-local-only-cost", 20, b), 6);
  EXPECT_EQ(replay_cost(program, "lru", 20, v), 7);
  EXPECT_EQ(replay_cost(program, "lru", 20, a), 5);  // the view stays undefined
}

TEST(DtrSimulator, AReplayMakesAllResultsAndFreesDuplicates) {
  DtrProgram program;
  const DtrOutput outputs[] = {{.size = 10_B, .alias = -1}, {.size = 12_B, .alias = -1}};
  const Tensors both = program.add_op("split", ns(8), {}, outputs);
  make(program, 1, 12);
  program.keep(both[0]);
  program.keep(both[1]);  // evicted: the largest, and made before the other one of its size
  const SimulationResult result = run(program, "largest", 33);
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_EQ(result.stats.evictions, 2);
  EXPECT_EQ(result.replay_cost, ns(8));
  EXPECT_EQ(result.stats.peak_bytes, 10 + 22);
  EXPECT_EQ(result.stats.resident_bytes, 22);
  EXPECT_EQ(run(program, "largest", 31).status, Status::kOutOfBudget);
}

// The last op waits for m and k, and the replay of m needs room. The candidates are z, from which k
// is computed, and w. If z is evicted, its replay evicts w.
TEST(DtrSimulator, FutureOutputsCountAsEvicted) {
  DtrProgram program;
  const DtrTensorId m = make(program, 1, 10);
  program.release(m);
  const DtrTensorId z = make(program, 2, 10);
  const DtrTensorId k = make(program, 4, 1, {z});
  program.release(k);
  const DtrTensorId w = make(program, 50, 10);
  make(program, 100, 1, {m, k});
  const std::int64_t without_z = 1 + 4 + 50;
  EXPECT_EQ(replay_cost(program, "dtr-only-cost", 29, w), without_z);         // z: 2 + 4 + 100
  EXPECT_EQ(replay_cost(program, "dtr-eq-only-cost", 29, w), without_z + 2);  // k was alone: 2 + 4
  EXPECT_EQ(replay_cost(program, "dtr-local-only-cost", 29, w), without_z + 2);  // 2
}

// c and d are computed from b, whose eviction joined them. They stay joined after its replay.
TEST(DtrSimulator, AComponentIsNeverSplit) {
  DtrProgram program;
  const DtrTensorId b = make(program, 2, 1);
  const DtrTensorId c = make(program, 20, 1, {b});
  const DtrTensorId d = make(program, 30, 1, {b});
  const DtrTensorId y = make(program, 1, 10, {c});
  for (const DtrTensorId gone : {c, d, b}) {
    program.release(gone);
  }
  program.release(make(program, 4, 0, {b}));
  const DtrTensorId w = make(program, 40, 10);
  make(program, 1000, 10);  // evicts w, or y: 1 + 20 + 30 by its component, and 1 + 20 by e*
  EXPECT_EQ(replay_cost(program, "dtr-eq-only-cost", 22, w), 2 + 40);
  EXPECT_EQ(replay_cost(program, "dtr-eq-only-cost", 22, y), 2);
  EXPECT_EQ(replay_cost(program, "dtr-only-cost", 22, w), 2);
  EXPECT_EQ(replay_cost(program, "dtr-only-cost", 22, y), 2 + 20 + 1);
}

TEST(DtrSimulator, StopsWhenReplaysCostTooMuch) {
  DtrProgram program;
  const DtrTensorId a = make(program, 10, 10);
  make(program, 10, 10);
  program.keep(a);
  EXPECT_EQ(simulate_dtr(program, "lru", 10_B, 1.5).status, Status::kOk);
  const SimulationResult slow = simulate_dtr(program, "lru", 10_B, 1.4);
  EXPECT_EQ(slow.status, Status::kTooSlow);
  EXPECT_EQ(slow.time_ratio(), 1.5);
}

TEST(DtrSimulator, DepthIsBoundedByTheHeapOnly) {
  constexpr int kLength = 200'000;
  DtrProgram program;
  DtrTensorId last = make(program, 1, 1);
  for (int i = 1; i < kLength; ++i) {
    const DtrTensorId next = make(program, 1, 1, {last});
    program.release(last);
    last = next;
  }
  make(program, 1, 3);
  program.keep(last);
  for (const char* policy : {"lru", "dtr-eq"}) {
    const SimulationResult result = run(program, policy, 3);
    EXPECT_EQ(result.status, Status::kOk);
    EXPECT_EQ(result.stats.replays, kLength);
    EXPECT_EQ(result.stats.replay_depth_max, kLength);
  }
}

TEST(DtrSimulator, RefusesImpossiblePrograms) {
  DtrProgram program;
  const DtrTensorId a = make(program, 1, 1);
  program.release(a);
  EXPECT_THROW(program.release(a), std::invalid_argument);
  EXPECT_THROW(program.keep(a), std::invalid_argument);
  EXPECT_THROW(program.hold(DtrTensorId(7)), std::invalid_argument);
  EXPECT_THROW(make(program, 1, 1, {DtrTensorId(7)}), std::invalid_argument);
  EXPECT_THROW(make(program, -1, 1), std::invalid_argument);
  EXPECT_THROW(make(program, 1, -1), std::invalid_argument);
  EXPECT_THROW(program.add_constant(Bytes(-1)), std::invalid_argument);
  EXPECT_THROW(program.add_op("none", ns(1), {a}, {}), std::invalid_argument);
  for (const DtrOutput& output : {DtrOutput{.size = 0_B, .alias = 1}, {.size = 1_B, .alias = 0}}) {
    EXPECT_THROW(program.add_op("view", ns(1), {a}, {&output, 1}), std::invalid_argument);
  }
  try {
    run(program, "best", 1);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what())
                  .find("'best'; the policies of the DTR authors' simulator are dtr"),
              std::string::npos);
  }
}

TEST(DtrSimulator, EachPolicyIsANamedScore) {
  ASSERT_EQ(dtr_policies().size(), 16U);
  DtrProgram program;
  make(program, 1, 1);
  for (const DtrPolicyInfo& info : dtr_policies()) {
    EXPECT_EQ(run(program, info.name, 1).status, Status::kOk) << info.name;
  }
}

}  // namespace
}  // namespace recoup
