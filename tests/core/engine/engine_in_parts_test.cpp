// Note [Parts]: the guarantees of begin(), in random programs.
#include <gtest/gtest.h>

#include <random>

#include "tests/core/support/engine_contract.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

using Lists = std::vector<std::vector<Tensor>>;  // the tensors that each part writes

class EngineInParts : public EngineContract {
 protected:
  static Options options(std::int64_t budget, std::int64_t tier) {
    Options options = plain_options(units(budget));
    options.spill = units(tier);
    options.spill_unit = kUnit;
    options.spill_write_ns_per_byte = options.spill_read_ns_per_byte = 1;
    return options;
  }

  static std::vector<Part> parts_of(const Program& p, const Lists& lists) {
    std::vector<Part> parts;
    for (const std::vector<Tensor>& tensors : lists) {
      Part& part = parts.emplace_back();
      for (const Tensor tensor : tensors) {
        part.operands.push_back({.storage = p.id(tensor), .written = true});
      }
    }
    return parts;
  }

  static void run_all(Program& p, const Lists& lists) {
    for (const std::vector<Tensor>& tensors : lists) {
      Call call;
      for (const Tensor tensor : tensors) {
        call.arguments.push_back({.tensor = tensor, .access = Access::kUpdate});
      }
      p.run(call);
    }
  }
};

TEST_F(EngineInParts, NeedsRoomForTheLargestPartOnly) {
  Program& p = start(options(4, 20));
  Lists lists;
  for (const std::int64_t size : {1, 2, 1}) {
    lists.push_back({p.source(units(size)), p.source(units(size))});
  }
  const std::vector<Part> parts = parts_of(p, lists);
  ASSERT_TRUE(p.engine().in_parts().begin(parts));
  run_all(p, lists);
  p.engine().in_parts().end();
  p.check();
}

TEST_F(EngineInParts, PinnedValuesReduceTheRoom) {
  Program& p = start(options(4, 20));
  const Tensor pinned = p.source(kUnit);
  p.pin(pinned);
  Lists lists = {{p.source(kUnit)}, {p.source(units(2)), p.source(units(2))}};
  const std::vector<Part> parts = parts_of(p, lists);
  EXPECT_THROW((void)p.engine().in_parts().begin(parts), OutOfBudget);
  p.check();
  p.unpin(pinned);
  ASSERT_TRUE(p.engine().in_parts().begin(parts));
  run_all(p, lists);
  p.engine().in_parts().end();
}

TEST_F(EngineInParts, DependentsAreFrozenBeforeTheFirstPart) {
  Program& p = start(options(8, 0));
  const Tensor x = p.source(kUnit);
  const Tensor made = p.op({x}, kUnit);
  const Tensor dependent = p.op({x}, kUnit);
  p.evict(made);
  p.evict(dependent);
  Lists lists = {{x}, {made}};
  const std::vector<Part> parts = parts_of(p, lists);
  ASSERT_TRUE(p.engine().in_parts().begin(parts));
  EXPECT_TRUE(p.resident(made) && p.non_recomputable(made) && p.non_recomputable(dependent));
  const std::int64_t replays = p.stats().replays;
  run_all(p, lists);
  EXPECT_EQ(p.stats().replays, replays);
  p.engine().in_parts().end();
}

struct Chance {
  explicit Chance(std::uint32_t seed) : engine(seed) {}
  std::int64_t upto(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(engine);
  }
  std::mt19937 engine;
};

// Makes sources, dependents of them, pins, and lists of both. Returns false if they do not fit.
bool make(Program& p, Chance& chance, Lists& lists) {
  try {
    std::vector<Tensor> others;
    for (std::int64_t i = chance.upto(5); i >= 0; --i) {
      others.push_back(p.source(units(1 + chance.upto(2))));
    }
    for (std::int64_t i = 1 + chance.upto(6); i >= 0; --i) {
      std::vector<Tensor>& tensors = lists.emplace_back();
      const Bytes size = units(1 + chance.upto(5));
      for (std::int64_t j = chance.upto(3); j >= 0; --j) {
        tensors.push_back(chance.upto(2) == 0 ? p.op({others.front()}, size) : p.source(size));
      }
      if (chance.upto(3) == 0) {
        others.push_back(p.op({others.back()}, kUnit));
      }
    }
    if (chance.upto(2) == 0) {
      p.pin(others.back());
    }
    if (chance.upto(3) == 0) {
      p.drop(others.front());
    }
    lists.push_back({lists.front().front()});  // in a second part
  } catch (const OutOfBudget&) {
    return false;
  }
  return true;
}

TEST_F(EngineInParts, AfterBeginNoPartFails) {
  int ran = 0;
  int whole = 0;
  int refused = 0;
  for (std::uint32_t seed = 0; seed < seeds(3000); ++seed) {
    Chance chance(seed);
    Program p(options(6 + chance.upto(30), chance.upto(3) == 0 ? 0 : chance.upto(90)));
    Lists lists;
    if (!make(p, chance, lists)) {
      continue;
    }
    const std::vector<Part> parts = parts_of(p, lists);
    try {
      if (!p.engine().in_parts().begin(parts)) {
        ++whole;
        continue;
      }
    } catch (const OutOfBudget&) {
      ++refused;
      p.check();
      continue;
    }
    ++ran;
    ASSERT_NO_THROW(run_all(p, lists)) << "seed " << seed;
    p.engine().in_parts().end();
    p.check();
  }
  EXPECT_GT(ran, seeds(500));
  EXPECT_GT(refused, seeds(100));
  EXPECT_GT(whole, seeds(10));
  EXPECT_LT(whole, ran);
}

// A second look, after bytes were missing, holds the slots that the first one held.
TEST_F(EngineInParts, ASecondLookHoldsNoSlotTwice) {
  Program& p = start(options(5, 6));
  const Tensor x = p.source(units(4));
  (void)p.source(units(2));  // spills x
  std::vector<Part> parts = parts_of(p, {{x}, {x}});
  parts[0].workspace = kUnit;
  EXPECT_NO_THROW(EXPECT_FALSE(p.engine().in_parts().begin(parts)));
  p.run({.arguments = {{x, Access::kUpdate}}, .fresh = {}, .workspace = {kUnit}});
  p.expect_all();
}

}  // namespace
}  // namespace recoup::detail
