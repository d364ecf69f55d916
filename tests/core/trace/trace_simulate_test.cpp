// A simulated run makes the same decisions as a live run, in the same order: evictions, replays and
// moves. A recording does not depend on the budget in which it was made.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "csrc/engine/base/decisions.h"
#include "csrc/engine/base/observers.h"
#include "csrc/simulator/simulator.h"
#include "csrc/trace/recorder.h"
#include "recoup/offline/traces.h"
#include "recoup/policy.h"
#include "tests/core/support/engine_program.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

constexpr Bytes kPlenty = 1_MiB;
constexpr int kDrawnOps = 120;

// A program whose choices depend on its seed only.
class Drawn {
 public:
  // `segments`: the number of segments of an allocator outside, each with a few storages.
  Drawn(std::uint64_t seed, const Options& options, Observer* observer, bool bounces = false,
        std::uint32_t segments = 0)
      : random_(seed), program_(options), segments_(segments) {
    if (bounces) {
      (void)program_.engine().reserve_bounce();
    }
    program_.device().bytes_a_payload = 0;
    program_.engine().set_observer(observer);
  }

  // Returns false if it ran out of budget.
  bool run() {
    try {
      fill_segments();
      for (int step = 0; step < kDrawnOps; ++step) {
        act();
      }
      program_.engine().user().materialize_all();
    } catch (const OutOfBudget&) {
      return false;
    }
    return true;
  }
  [[nodiscard]] Stats stats() const { return program_.stats(); }
  // For each op on lists, whether it ran in parts.
  [[nodiscard]] const std::vector<bool>& in_parts() const { return in_parts_; }

 private:
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Tensor any() {
    const auto last = static_cast<std::int64_t>(program_.live().size()) - 1;
    return program_.live()[static_cast<std::size_t>(number(0, last))];
  }

  // The last segment also has an allocation of other code for a while.
  void fill_segments() {
    for (std::uint32_t segment = 0; segment < segments_; ++segment) {
      program_.set_segment(segment, Bytes(0));
      for (std::int64_t i = number(1, 3); i > 0; --i) {
        program_.in_segment(segment, Bytes(number(1, 300)));
      }
      const SegmentChange change{.segment = SegmentId(segment), .returnable = Bytes(1024)};
      if (segment + 1 < segments_) {
        program_.engine().set_segment(change);
      } else {
        program_.device().segment_changes.push_back(change);
      }
    }
  }

  void act() {
    if (program_.live().size() > 12) {
      program_.drop(any());
    }
    if (number(0, 9) == 0) {
      program_.engine().update_segments();
    }
    const std::int64_t dice = program_.live().empty() ? 0 : number(0, 99);
    if (dice < 62) {
      call();
    } else if (dice < 70) {
      call_on_lists();
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
    } else if (number(0, 2) == 0) {
      program_.set_rule(any(), number(0, 9) == 0 ? StorageRule::kStays : StorageRule::kOffTier);
    } else if (number(0, 1) == 0) {
      program_.escape(any());
    } else {
      program_.escape_and_leave(any());
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
    if (number(0, 19) == 0) {
      call.keeps = Bytes(number(1, 100));
    }
    if (std::vector<BlockId>& kept = program_.device().kept; !kept.empty() && number(0, 29) == 0) {
      program_.engine().free(kept.back());
      kept.pop_back();
    }
    call.cost = Nanoseconds(number(1, 1000));
    call.repeatable = number(0, 9) > 0;
    if (may_be_in_place(call) && number(0, 1) == 0) {
      call.overwritable = true;
      if (!call.arguments.empty() && !call.fresh.empty()) {
        call.fresh.front() = program_.storage(call.arguments.front().tensor).nbytes;
      }
    }
    program_.run(call);
  }

  // Some of the parts write.
  void call_on_lists() {
    std::vector<Tensor> chosen = program_.live();
    std::shuffle(chosen.begin(), chosen.end(), random_);
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(number(2, 10))));
    std::vector<Call> calls;
    std::vector<Part> parts;
    for (const Tensor tensor : chosen) {
      if (calls.empty() || number(0, 2) == 0) {
        calls.push_back({.arguments = {}, .fresh = {}, .cost = Nanoseconds(number(1, 1000))});
        Part& part = parts.emplace_back();
        if (number(0, 3) == 0) {
          part.workspace = Bytes(number(1, 300));
          calls.back().workspace = {part.workspace};
        }
      }
      const bool written = number(0, 3) > 0;
      calls.back().arguments.push_back(
          {.tensor = tensor, .access = written ? Access::kUpdate : Access::kRead});
      parts.back().operands.push_back({.storage = program_.id(tensor), .written = written});
    }
    program_.engine().set_running_op("test::list");
    in_parts_.push_back(program_.engine().in_parts().begin(parts));
    if (!in_parts_.back()) {
      program_.run(whole_of(calls));
      return;
    }
    for (const Call& call : calls) {
      program_.run(call);
    }
    program_.engine().in_parts().end();
  }
  static Call whole_of(const std::vector<Call>& calls) {
    Call whole = calls.front();
    for (const Call& call : std::span(calls).subspan(1)) {
      whole.arguments.insert(whole.arguments.end(), call.arguments.begin(), call.arguments.end());
      whole.workspace.insert(whole.workspace.end(), call.workspace.begin(), call.workspace.end());
    }
    return whole;
  }

  std::mt19937_64 random_;
  Program program_;
  std::uint32_t segments_ = 0;
  std::vector<bool> in_parts_;
};

Options simulated_options(std::string_view policy, std::uint64_t seed) {
  std::mt19937_64 random(seed * 77 + 1);
  Options options;
  options.policy = policy;
  options.budget = Bytes(static_cast<std::int64_t>(20 + random() % 60) * 64);
  options.small_result_bytes = 64_B;
  options.usefulness = random() % 4 != 0;
  options.replay_order = random() % 4 != 0 ? ReplayOrder::kMemory : ReplayOrder::kRecursive;
  options.cost_model = random() % 2 == 0 ? CostModel::kMeasured : CostModel::kBytes;
  options.reuse_operands = random() % 4 != 0;
  options.evict_after_op = random() % 10 == 0;
  options.sampling = random() % 2 == 0;
  options.in_place = random() % 4 != 0 ? InPlace::kShare : InPlace::kCopy;
  options.placement = random() % 2 == 0 ? Placement::kBestFit : Placement::kTwoEnded;
  if (random() % 3 != 0) {  // a spill tier
    options.spill_unit = 64_B;
    options.spill = Bytes(static_cast<std::int64_t>(random() % 120) * 64);
    options.spill_request_ns = random() % 2 == 0 ? 1.0 : 1000.0;
  }
  return options;
}

struct Recording {
  Trace trace;
  std::vector<bool> in_parts;

  // Whether each op on lists, as far as the other run went, ran in the same way. In another budget
  // one may run differently, and then the trace differs.
  [[nodiscard]] bool has_all(const std::vector<bool>& others) const {
    return others.size() <= in_parts.size() &&
           std::equal(others.begin(), others.end(), in_parts.begin());
  }
};

Recording recording_of(std::uint64_t seed, Options options) {
  options.budget = kPlenty;
  TraceBuilder builder;
  TraceRecorder recorder(builder);
  Drawn drawn(seed, options, &recorder);
  EXPECT_TRUE(drawn.run());
  return {.trace = builder.take(), .in_parts = drawn.in_parts()};
}

SimulationResult simulated(const Trace& trace, const Options& options, Observer* observer) {
  return Simulator(trace, {.engine = options, .max_time_ratio = 0}, observer).run();
}

class Simulation : public testing::TestWithParam<std::string_view> {};

TEST_P(Simulation, DecidesAsTheLiveRun) {
  std::size_t decisions = 0;
  int finished = 0;
  int in_parts = 0;
  int other_way = 0;
  for (std::uint64_t seed = 0; seed < seeds(150); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Options options = simulated_options(GetParam(), seed);
    const Recording generous = recording_of(seed, options);
    ASSERT_NO_THROW(validate(generous.trace));
    DecisionLog live;
    TraceBuilder builder;
    TraceRecorder recorder(builder);
    Observers observers{&live, &recorder};
    Drawn drawn(seed, options, &observers);
    const bool ran = drawn.run();
    const bool as_generous = generous.has_all(drawn.in_parts());
    if (!as_generous) {
      ++other_way;
      (void)simulated(generous.trace, options, nullptr);
      ASSERT_NO_THROW(validate(builder.trace()));
    }
    if (!as_generous && !ran) {
      continue;  // an op that did not fit is not in the trace
    }
    DecisionLog log;
    const SimulationResult result =
        simulated(as_generous ? generous.trace : builder.trace(), options, &log);
    ASSERT_EQ(result.status == SimulationResult::Status::kOk, ran) << result.reason;
    ASSERT_EQ(log.decisions(), live.decisions());
    EXPECT_EQ(result.stats.peak_bytes, drawn.stats().peak_bytes);
    EXPECT_EQ(result.stats.replay_cost_ns, drawn.stats().replay_cost_ns);
    EXPECT_EQ(result.stats.spill_cost_ns, drawn.stats().spill_cost_ns);
    decisions += live.decisions().size();
    finished += ran ? 1 : 0;
    in_parts +=
        static_cast<int>(std::count(drawn.in_parts().begin(), drawn.in_parts().end(), true));
  }
  EXPECT_GT(decisions, seeds(1000));
  EXPECT_GT(finished, seeds(20));
  EXPECT_GT(in_parts, seeds(100));
  EXPECT_GE(other_way, seeds(4));
}

TEST_P(Simulation, ATraceDoesNotDependOnTheBudget) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < seeds(110); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Options options = simulated_options(GetParam(), seed);
    const Recording expected = recording_of(seed, options);
    TraceBuilder builder;
    TraceRecorder recorder(builder);
    Drawn drawn(seed, options, &recorder);
    if (drawn.run() && expected.has_all(drawn.in_parts())) {
      EXPECT_EQ(builder.trace(), expected.trace);
      ++compared;
    }
  }
  EXPECT_GT(compared, seeds(10, 1));
}

// The device rounds budgets, has another alignment than a CPU, uses a part of the budget, and has a
// bounce buffer.
TEST(SimulatedDevice, DecidesAsTheLiveRun) {
  const TraceDevice device{.alignment = 256_B,
                           .unit = 4_KiB,
                           .outside = 3000_B,
                           .window = 0_B,
                           .bounces = true,
                           .compares = false};
  std::size_t decisions = 0;
  std::int64_t imports = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TraceBuilder builder;
    builder.set_device(device);
    TraceRecorder recorder(builder);
    DecisionLog live;
    Observers observers{&live, &recorder};
    const Bytes budget(13000 + static_cast<std::int64_t>(seed % 20) * 1000);
    Options options = simulated_options("recoup", seed);
    options.budget = Bytes(budget.count() / device.unit.count() * device.unit.count());
    options.alignment = device.alignment;
    options.outside = device.outside;
    options.spill_compares = false;
    Drawn drawn(seed, options, &observers, device.bounces, static_cast<std::uint32_t>(seed % 3));
    if (!drawn.run()) {
      continue;
    }
    Options asked = simulated_options("recoup", seed);
    asked.budget = budget;
    std::vector<Decision> simulated;
    const SimulationResult result =
        simulate(builder.trace(), {.engine = asked, .max_time_ratio = 0}, &simulated);
    ASSERT_EQ(result.status, SimulationResult::Status::kOk) << result.reason;
    ASSERT_EQ(simulated, live.decisions());
    EXPECT_EQ(result.stats.peak_bytes, drawn.stats().peak_bytes);
    EXPECT_EQ(result.stats.imports, drawn.stats().imports);
    decisions += simulated.size();
    imports += result.stats.imports;
  }
  EXPECT_GT(decisions, 500U);
  EXPECT_GT(imports, 10);
}

// An op on lists that ran as a whole is simulated as a whole, even if its parts would fit.
TEST(SimulatedParts, NothingIsReservedForPartsThatDoNotRun) {
  const KernelStep steps[] = {{.kind = KernelStep::Kind::kAllocate, .index = 0, .size = 64_B}};
  TraceBuilder builder;
  builder.add_name("test::op");
  builder.add_kernel(steps);
  builder.add_kernel({});
  std::vector<TracePart> parts;
  std::vector<TracePartOperand> list;
  std::vector<TraceOperand> whole;
  for (std::uint32_t storage = 0; storage < 6; ++storage) {
    builder.add_op({.repeatable = false}, {}, std::vector<TraceFresh>{{.nbytes = 64_B}});
    parts.push_back({.operand_count = 1});
    list.push_back({.storage = storage, .written = true});
    whole.push_back({.storage = storage, .reads = true, .written = true});
  }
  builder.add_list_op({}, parts, list);
  builder.add_event({.kind = TraceEvent::Kind::kPartsEnd});
  builder.add_op({.kernel = 1}, whole, {});
  const Trace trace = builder.take();
  ASSERT_NO_THROW(validate(trace));
  Options options = plain_options(Bytes(6 * 64));
  options.spill = Bytes(6 * 64);
  options.spill_unit = 64_B;
  EXPECT_EQ(simulated(trace, options, nullptr).status, SimulationResult::Status::kOk);
  options.budget = Bytes(5 * 64);  // the parts fit, the whole does not
  EXPECT_EQ(simulated(trace, options, nullptr).status, SimulationResult::Status::kOutOfBudget);
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
