// Random programs under every policy and setting. Every storage must always hold the bytes that a
// plain interpreter computes, every invariant must hold after every step, and an OutOfBudget error
// must be justified.
#include "tests/core/support/fuzzer.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

constexpr std::uint64_t kRandomPrograms = seeds(300);

class EngineRandom : public testing::TestWithParam<const PolicyInfo*> {};

TEST_P(EngineRandom, AgreesWithAPlainInterpreter) {
  for (std::uint64_t seed = 0; seed < programs(kRandomPrograms) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Fuzzer fuzzer(GetParam()->name, seed);
    ASSERT_NO_THROW(fuzzer.run());
  }
}

class EngineRandomOrder : public EngineRandom {};

TEST_P(EngineRandomOrder, DecidesAsAFullSearch) {
  std::size_t decisions = 0;
  for (std::uint64_t seed = 0; seed < programs(kRandomPrograms) && !HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Fuzzer all(GetParam()->name, seed, false);
    Fuzzer order(GetParam()->name, seed, true);
    ASSERT_NO_THROW(all.run());
    ASSERT_NO_THROW(order.run());
    ASSERT_EQ(all.decisions().log, order.decisions().log);
    decisions += all.decisions().log.size();
  }
  EXPECT_GT(decisions, 20 * programs(kRandomPrograms));
}

std::vector<const PolicyInfo*> all_policies(bool with_order = false) {
  std::vector<const PolicyInfo*> all;
  for (const PolicyInfo& info : policies()) {
    if (!info.simulated_only && info.schedule == ScheduleKind::kNone &&
        (info.has_order || !with_order)) {
      all.push_back(&info);
    }
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<const PolicyInfo*>& param) {
  std::string name(param.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(AllPolicies, EngineRandom, testing::ValuesIn(all_policies()), name_of);
INSTANTIATE_TEST_SUITE_P(AllWithOrder, EngineRandomOrder, testing::ValuesIn(all_policies(true)),
                         name_of);

}  // namespace
}  // namespace recoup::detail
