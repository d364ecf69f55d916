// Room for a kernel's block: what is evicted when free memory is fragmented.
#include <gtest/gtest.h>

#include "tests/core/support/engine_contract.h"

namespace recoup::detail {
namespace {

class EngineRoom : public EngineContract {};

// |5 free|x!|free|c|: a kernel reads x, which stays in place, and needs six units. So evicting c does
// not help. The kernel is run again after x and c were moved to one side.
TEST_F(EngineRoom, NothingIsEvictedIfBlocksThatStayAreInTheWay) {
  Options options = options_of(8);
  options.placement = Placement::kBestFit;
  Program& p = start(options);
  const Tensor first = p.source(units(2));
  const Tensor x = p.source(kUnit);
  const Tensor c = p.op({x}, kUnit);
  const Tensor large = p.op({x}, units(5));  // evicts c: the budget is not enough for everything
  p.drop(large);
  p.drop(first);
  p.expect(c);
  ASSERT_EQ(p.engine().pool().offset(p.value(x).block), units(5));
  const std::int64_t evictions = p.stats().evictions;
  p.op({x}, units(6));
  EXPECT_EQ(p.stats().evictions, evictions);
  EXPECT_TRUE(p.resident(c));
}

}  // namespace
}  // namespace recoup::detail
