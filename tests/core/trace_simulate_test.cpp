// A simulated run decides what a live run decides: which value goes, which op is replayed, what
// moves where, in order. And a recording does not depend on the budget that it was made in.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include "csrc/engine/decisions.h"
#include "csrc/simulate/simulator.h"
#include "csrc/trace/recorder.h"
#include "recoup/policy.h"
#include "recoup/simulate.h"
#include "tests/core/engine_program.h"

namespace recoup::detail {
namespace {

constexpr Bytes kGenerous = 1_MiB;
constexpr int kSteps = 120;

// A program whose choices depend on its seed alone.
class Drawn {
 public:
  Drawn(std::uint64_t seed, const Options& options, Observer* observer)
      : random_(seed), program_(options) {
    program_.device().bytes_a_payload = 0;
    program_.engine().set_observer(observer);
  }

  // False: it ran out of budget.
  bool run() {
    try {
      for (int step = 0; step < kSteps; ++step) {
        act();
      }
      program_.engine().user().materialize_all();
    } catch (const OutOfBudget&) {
      return false;
    }
    return true;
  }
  [[nodiscard]] Stats stats() const { return program_.stats(); }

 private:
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Tensor any() {
    const auto last = static_cast<std::int64_t>(program_.live().size()) - 1;
    return program_.live()[static_cast<std::size_t>(number(0, last))];
  }

  void act() {
    if (program_.live().size() > 12) {
      program_.drop(any());
    }
    const std::int64_t dice = program_.live().empty() ? 0 : number(0, 99);
    if (dice < 70) {
      call();
    } else if (dice < 82) {
      program_.drop(any());
    } else if (dice < 86) {
      program_.external(Bytes(number(1, 400)));
    } else if (dice < 90) {
      program_.evict(any());
    } else if (dice < 93) {
      program_.pin(any());
    } else if (dice < 97) {
      if (const Tensor tensor = any(); program_.pins(tensor) > 0) {
        program_.unpin(tensor);
      }
    } else {
      program_.escape(any());
    }
  }

  void call() {
    Call call{.arguments = {}, .fresh = {}};
    for (std::int64_t i = program_.live().empty() ? 0 : number(0, 3); i > 0; --i) {
      const Tensor tensor = any();
      const bool known = std::any_of(call.arguments.begin(), call.arguments.end(),
                                     [&](const Argument& a) { return a.tensor == tensor; });
      if (!known) {
        const std::int64_t how = number(0, 9);
        call.arguments.push_back({.tensor = tensor,
                                  .access = how < 7   ? Access::kRead
                                            : how < 9 ? Access::kUpdate
                                                      : Access::kOverwrite});
      }
    }
    for (std::int64_t i = number(0, 2); i > 0; --i) {
      call.fresh.push_back(Bytes(number(1, 400)));
    }
    for (std::int64_t i = number(0, 2); i > 0; --i) {
      call.workspace.push_back(Bytes(number(1, 300)));
    }
    call.cost = Nanoseconds(number(1, 1000));
    call.repeatable = number(0, 9) > 0;
    program_.run(call);
  }

  std::mt19937_64 random_;
  Program program_;
};

Options options_of(std::string_view policy, std::uint64_t seed) {
  std::mt19937_64 random(seed * 77 + 1);
  Options options;
  options.policy = policy;
  options.budget = Bytes(static_cast<std::int64_t>(20 + random() % 60) * 64);
  options.small_leaf = 64_B;
  options.usefulness = random() % 4 != 0;
  options.replay_order = random() % 4 != 0 ? ReplayOrder::kMemory : ReplayOrder::kRecursive;
  options.cost_model = random() % 2 == 0 ? CostModel::kMeasured : CostModel::kBytes;
  options.evict_after_op = random() % 10 == 0;
  options.sampling = random() % 2 == 0;
  options.in_place = random() % 4 != 0 ? InPlace::kShare : InPlace::kCopy;
  options.placement = random() % 2 == 0 ? Placement::kBestFit : Placement::kTwoEnded;
  return options;
}

Trace trace_of(std::uint64_t seed, Options options) {
  options.budget = kGenerous;
  TraceBuilder builder;
  TraceRecorder recorder(builder);
  EXPECT_TRUE(Drawn(seed, options, &recorder).run());
  return builder.take();
}

class Simulation : public testing::TestWithParam<std::string_view> {};

TEST_P(Simulation, DecidesAsTheLiveRunDoes) {
  std::size_t decisions = 0;
  int finished = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Options options = options_of(GetParam(), seed);
    const Trace trace = trace_of(seed, options);
    ASSERT_NO_THROW(validate(trace));
    DecisionLog live;
    Drawn drawn(seed, options, &live);
    const bool ran = drawn.run();
    DecisionLog simulated;
    const SimulationResult result =
        Simulator(trace, {.engine = options, .max_time_ratio = 0}, &simulated).run();
    ASSERT_EQ(result.status == SimulationResult::Status::kOk, ran) << result.reason;
    ASSERT_EQ(simulated.decisions(), live.decisions());
    EXPECT_EQ(result.stats.peak_bytes, drawn.stats().peak_bytes);
    EXPECT_EQ(result.stats.replay_cost_ns, drawn.stats().replay_cost_ns);
    decisions += live.decisions().size();
    finished += ran ? 1 : 0;
  }
  EXPECT_GT(decisions, 1000U);
  EXPECT_GT(finished, 20);
}

TEST_P(Simulation, ATraceDoesNotDependOnTheBudget) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Options options = options_of(GetParam(), seed);
    const Trace expected = trace_of(seed, options);
    TraceBuilder builder;
    TraceRecorder recorder(builder);
    if (Drawn(seed, options, &recorder).run()) {
      EXPECT_EQ(builder.trace(), expected);
    }
  }
}

// ---- what a random program does not do ----

std::vector<std::string> kinds_of(const Trace& trace) {
  std::vector<std::string> kinds;
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case TraceEvent::Kind::kAllocate:
        kinds.emplace_back("allocate");
        break;
      case TraceEvent::Kind::kAdopt:
        kinds.emplace_back("adopt");
        break;
      case TraceEvent::Kind::kFree:
        kinds.emplace_back("free");
        break;
      case TraceEvent::Kind::kDie:
        kinds.emplace_back("die");
        break;
      case TraceEvent::Kind::kOp:
        kinds.push_back(trace.names[trace.ops[event.index].name]);
        break;
      default:
        kinds.emplace_back("other");
        break;
    }
  }
  return kinds;
}

class Recorded : public testing::Test {
 protected:
  void begin(std::string_view name, std::initializer_list<std::uint32_t> storages) {
    std::vector<Operand> operands;
    for (std::uint32_t storage : storages) {
      operands.push_back({.storage = StorageId(storage), .value = {}, .reads = true});
    }
    recorder_.on_op_begin(name, operands);
  }
  void end(std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> blocks_and_storages) {
    std::vector<FreshStorage> fresh;
    std::vector<StorageId> storages;
    for (const auto& [block, storage] : blocks_and_storages) {
      fresh.push_back({.block = BlockId(block), .nbytes = 64_B});
      storages.emplace_back(storage);
    }
    OpRecord record;
    record.fresh = fresh;
    recorder_.on_op_end(record, {}, storages);
  }
  void allocate(std::uint32_t block) { recorder_.on_allocate(BlockId(block), 64_B); }
  static void on_another_thread(const std::function<void()>& act) { std::thread(act).join(); }

  TraceBuilder builder_;
  TraceRecorder recorder_{builder_};
};

TEST_F(Recorded, OpsOfTwoThreadsSideBySide) {
  recorder_.on_external(StorageId(7), 64_B);
  begin("first", {7});
  allocate(1);
  on_another_thread([this] {
    begin("second", {7});
    allocate(2);
    end({{2, 8}});
  });
  recorder_.on_death(StorageId(8));  // goes after both: the first still runs
  recorder_.on_death(StorageId(7));
  end({{1, 9}});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"other", "second", "first", "die", "die"}));
}

TEST_F(Recorded, ABlockThatOutlivesItsKernel) {
  begin("keeps", {});
  allocate(1);
  allocate(2);
  end({{2, 5}});
  recorder_.on_free(BlockId(1));
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()), (std::vector<std::string>{"keeps", "allocate", "free"}));
}

TEST_F(Recorded, AResultThatWasThereBefore) {
  allocate(3);
  begin("hands out", {});
  allocate(4);
  end({{3, 1}, {4, 2}});
  begin("reads both", {1, 2});
  end({});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"allocate", "hands out", "adopt", "reads both"}));
  EXPECT_EQ(builder_.trace().operands.front().storage, 1U);  // adopted after the fresh one
}

// A thread that runs no op allocates, and its block is taken for the op that runs.
TEST_F(Recorded, ABlockThatAnotherThreadAdopts) {
  begin("runs", {});
  allocate(1);
  on_another_thread([this] {
    allocate(2);
    recorder_.on_adopt({.block = BlockId(2), .nbytes = 64_B}, StorageId(4));
  });
  end({{1, 5}});
  begin("reads both", {4, 5});
  end({});
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(kinds_of(builder_.trace()),
            (std::vector<std::string>{"allocate", "adopt", "runs", "reads both"}));
}

TEST_F(Recorded, ANameIsCutWhereATraceCannotHoldIt) {
  recorder_.on_step(std::string(5000, 'x'));
  recorder_.on_step("a\xff");
  ASSERT_NO_THROW(validate(builder_.trace()));
  EXPECT_EQ(builder_.trace().names, (std::vector<std::string>{std::string(4096, 'x'), "a"}));
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const PolicyInfo& info : policies()) {
    if (!info.simulated_only) {
      names.push_back(info.name);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(AllPolicies, Simulation, testing::ValuesIn(policy_names()),
                         [](const auto& param) {
                           std::string name(param.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace recoup::detail
