// External storages and the spill tier, with one hand-written program each.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"
#include "tests/core/support/fuzzer.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

class EngineImport : public EngineContract {
 protected:
  static Options options(int budget, int tier) {
    Options options = plain_options(units(budget));
    options.spill = units(tier);
    options.spill_unit = kUnit;
    return options;
  }
};

TEST_F(EngineImport, ExternalStoragesStayWhileThereIsRoom) {
  Program& p = start(options(8, 8));
  const Tensor a = p.external(units(3));
  p.op({a}, units(4));
  EXPECT_EQ(p.stats().imports, 0);
  EXPECT_TRUE(p.storage(a).external);
  EXPECT_EQ(p.stats().external_bytes, units(3).count());
}

// External: aaa bb, in a budget of 8: the four units of the op do not fit next to them.
TEST_F(EngineImport, StoragesAreImportedOnAShortage) {
  Program& p = start(options(8, 12));
  const Tensor a = p.external(units(3));
  const Tensor b = p.external(units(2));
  const Tensor c = p.source(units(4));
  EXPECT_EQ(p.stats().imports, 2);
  EXPECT_EQ(p.stats().imported_bytes, units(5).count());
  EXPECT_EQ(p.stats().external_bytes, 0);
  EXPECT_FALSE(p.storage(a).external || p.storage(b).external);
  p.check();
  p.expect_all();
  p.update(a, {b});
  p.overwrite(b);
  p.expect_all();
  p.drop(a);
  p.drop(b);
  p.drop(c);
  p.check();
  p.engine().user().materialize_all();
  EXPECT_EQ(p.engine().charged(), Bytes(0));
  EXPECT_EQ(p.engine().context().tier.used(), Bytes(0));
}

// The largest is spilled; then the others fit twice.
TEST_F(EngineImport, OneIsSpilledToMakeRoomForTheOthers) {
  Program& p = start(options(6, 8));
  p.external(units(1));
  const Tensor large = p.external(units(3));
  p.external(units(2));
  const Tensor made = p.source(units(1));
  EXPECT_EQ(p.stats().imports, 3);
  EXPECT_EQ(p.stats().spills, 1);
  EXPECT_TRUE(p.value(large).spilled());
  EXPECT_TRUE(p.resident(made));
  p.expect_all();
}

// The model is larger than the budget: each part is imported when the next one is registered.
TEST_F(EngineImport, ImportsMoreThanTheBudget) {
  Program& p = start(options(4, 64));
  std::vector<Tensor> parts;
  for (int i = 0; i < 12; ++i) {
    parts.push_back(p.external(units(1)));
    p.op({parts.back()}, units(1));
  }
  for (const Tensor part : parts) {
    p.update(part);
  }
  p.expect_all();
  EXPECT_LE(p.stats().external_bytes, units(4).count());
  EXPECT_LE(p.stats().peak_bytes, units(4).count());
}

TEST_F(EngineImport, EscapedAndPinnedStoragesAreNotImported) {
  Program& p = start(options(8, 8));
  const Tensor escaped = p.external(units(2));
  const Tensor pinned = p.external(units(2));
  const Tensor other = p.external(units(1));
  p.escape(escaped);
  p.pin(pinned);
  p.source(units(4));
  EXPECT_TRUE(p.storage(escaped).external && p.storage(pinned).external);
  EXPECT_FALSE(p.storage(other).external);
  p.foreign_write(escaped);
  p.expect_all();
  p.unpin(pinned);
  p.source(units(3));
  EXPECT_TRUE(p.storage(escaped).external);
}

// The kernel holds its address.
TEST_F(EngineImport, OperandsOfARunningOpAreNotImported) {
  Program& p = start(options(8, 16));
  const Tensor a = p.external(units(5));
  const Tensor made = p.op({a}, units(3));
  p.drop(made);
  EXPECT_TRUE(p.storage(a).external);
  EXPECT_THROW(p.op({a}, units(4)), OutOfBudget);
  EXPECT_TRUE(p.storage(a).external);
  p.source(units(4));
  EXPECT_FALSE(p.storage(a).external);
  p.expect_all();
}

// The program has released the storage, and an evicted value depends on it.
TEST_F(EngineImport, DeadStoragesAreImported) {
  Program& p = start(options(8, 16));
  const Tensor a = p.external(units(3));
  const Tensor b = p.op({a}, units(2));
  p.evict(b);
  p.drop(a);
  p.source(units(6));
  EXPECT_EQ(p.stats().external_bytes, 0);
  p.expect_all();
}

TEST_F(EngineImport, WithoutRoomInTheTierNothingIsImported) {
  for (const int tier : {0, 1}) {
    Program& p = start(options(8, tier));
    const Tensor a = p.external(units(5));
    EXPECT_THROW(p.source(units(4)), OutOfBudget);
    EXPECT_TRUE(p.storage(a).external);
    p.expect_all();
  }
}

TEST_F(EngineImport, ADiskFailureLosesNothing) {
  Program& p = start(options(8, 8));
  const Tensor a = p.external(units(5));
  p.device().fail_spill(1);
  EXPECT_THROW(p.source(units(4)), OutOfBudget);
  EXPECT_TRUE(p.storage(a).external);
  p.expect_all();
}

// All values are restored at the end, for which the budget must be large enough.
TEST_F(EngineImport, LeavingRestoresThem) {
  Program& p = start(options(8, 16));
  const Tensor a = p.external(units(5));
  p.external(units(2));
  p.drop(p.source(units(4)));
  p.drop(p.source(units(8)));
  EXPECT_TRUE(p.value(a).spilled());
  p.engine().user().materialize_all();
  EXPECT_TRUE(p.resident(a));
  p.expect_all();
}

// An overwritten operand cannot be moved when the op is retried after compaction. An evicted value
// depends on its previous content.
TEST_F(EngineImport, AnOverwrittenOperandThatCannotMoveStaysRecomputable) {
  Fuzzer fuzzer("coop", 75845);
  fuzzer.run();
}

TEST_F(EngineImport, RandomProgramsImportStorages) {
  std::int64_t imports = 0;
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    SCOPED_TRACE(seed);
    Fuzzer fuzzer("recoup", seed);
    fuzzer.run();
    imports += fuzzer.stats().imports;
  }
  EXPECT_GT(imports, seeds(20));
}

}  // namespace
}  // namespace recoup::detail
