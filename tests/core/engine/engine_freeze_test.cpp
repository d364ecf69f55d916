// The limit of the cost of a freeze: Note [Restoring cheaply] in freezer.cpp.
#include <gtest/gtest.h>

#include <optional>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kValue = 1024_B;
constexpr int kCells = 48;
constexpr double kMostOfNextSmaller = 1.5;

// Two steps of a recurrent net whose saved values are live when its parameter is written:
//
//   w! --+--> gate --> (made) --+--> h --> ...      then w.update(h)
//   h ---/                h ----/
std::optional<double> work_in(Bytes budget, Stats& stats) {
  Program program(plain_options(budget, "recoup"));
  std::int64_t ops = 0;
  try {
    const Tensor w = program.source(kValue);
    Tensor h = program.source(kValue);
    for (int step = 0; step < 2; ++step) {
      std::vector<Tensor> saved;
      for (int cell = 0; cell < kCells; ++cell) {
        const Tensor gate = program.op({h, w}, kValue);
        const Tensor made = program.op({gate}, kValue);
        const Tensor next = program.op({made, h}, kValue);
        program.drop(made);
        saved.push_back(gate);
        saved.push_back(h);
        h = next;
        ops += 3;
      }
      program.update(w, {h});
      ++ops;
      program.check();
      for (Tensor tensor : saved) {
        program.drop(tensor);
      }
    }
    program.expect_all();
  } catch (const OutOfBudget&) {
    return std::nullopt;
  }
  stats = program.stats();
  return 1 + static_cast<double>(stats.replays) / static_cast<double>(ops);
}

TEST(EngineFreeze, ALargerBudgetDoesNotCostMuchMore) {
  constexpr Bytes all(kValue.count() * (2 * kCells + 4));
  std::optional<double> smaller;
  std::int64_t copies = 0;
  std::int64_t freezes = 0;
  for (int percent = 20; percent <= 100; percent += 2) {
    SCOPED_TRACE(testing::Message() << percent << " %");
    Stats stats;
    const std::optional<double> work = work_in(Bytes(all.count() * percent / 100), stats);
    if (work && smaller) {
      EXPECT_LE(*work, *smaller * kMostOfNextSmaller);
    }
    smaller = work ? work : smaller;
    copies += stats.old_version_copies;
    freezes += stats.freezes;
  }
  ASSERT_TRUE(smaller);
  EXPECT_GT(copies, 0);
  EXPECT_GT(freezes, 0);
}

}  // namespace
}  // namespace recoup::detail
