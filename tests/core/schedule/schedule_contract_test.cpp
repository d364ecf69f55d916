// What schedules must not do, in hand-written programs. Each test tries to cause one kind of
// damage.
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "csrc/schedule/runner.h"
#include "csrc/schedule/schedule.h"
#include "tests/core/support/engine_program.h"
#include "tests/core/support/planned_peak.h"

namespace recoup::detail {
namespace {

Options scheduled_options(Bytes budget) {
  Options options;
  options.budget = budget;
  options.small_result_bytes = 64_B;
  return options;
}

// Keeps no value that a replay passes through.
class KeepsNothing final : public ScheduleHooks {
 public:
  void before_op(std::string_view /*name*/, std::span<const Operand> /*operands*/) override {}
  void after_op() override {}
  [[nodiscard]] bool keeps(const ValueTicket& /*ticket*/) const override { return false; }
};

TEST(ScheduleContract, AValueMayDieWhileItIsRestored) {
  Program program(scheduled_options(1400_B));
  Engine& engine = program.engine();
  const Tensor x = program.external(100_B);
  const Tensor a = program.op({x}, 100_B);
  const Tensor b =
      program.run({.arguments = {{.tensor = a}}, .fresh = {100_B}, .workspace = {600_B}}).front();
  const Tensor c = program.op({b}, 100_B);
  const ValueTicket ticket = engine.values().ticket(engine.current(program.id(b)));
  program.drop(b);
  program.evict(a);
  ASSERT_TRUE(engine.value(ticket.value).evicted());
  program.pin(program.source(700_B));  // leaves no room for the workspace of b
  program.device().during_kernel = [&] { program.drop(c); };
  const ValueTicket tickets[] = {ticket};
  engine.schedule().restore(tickets);
  EXPECT_EQ(program.stats().restarts, 0);  // resident values are not evicted for it
  EXPECT_FALSE(engine.values().holds(ticket));
  program.check();
  // The record of the value that has the id next is unchanged.
  EXPECT_FALSE(program.value(program.external(10_B)).flags.kept);
  EXPECT_FALSE(program.value(program.external(10_B)).flags.kept);
}

TEST(ScheduleContract, NoPlanIfReplaysMayNotCostAStep) {
  for (const double ratio : {0.3, 1.0, 2.0, 0.0}) {
    Options options = scheduled_options(1_MiB);
    options.max_replay_ratio = ratio;
    Program program(options);
    ScheduleRunner runner(program.engine(), ScheduleKind::kSqrtN, 1_MiB);
    program.engine().set_schedule(&runner);
    program.engine().set_observer(&runner);
    for (int step = 0; step < 3; ++step) {
      std::vector<Tensor> chain = {program.op({}, 100_B)};
      while (chain.size() < 30) {
        chain.push_back(program.op({chain.back()}, 100_B));
      }
      while (!chain.empty()) {
        program.drop(program.op({chain.back()}, 100_B));
        program.drop(chain.back());
        chain.pop_back();
      }
      runner.end_step();
    }
    EXPECT_EQ(runner.driven() > 0, ratio == 0.0 || ratio >= 2.0) << ratio;
    program.check();
    program.engine().set_schedule(nullptr);
    program.engine().set_observer(nullptr);
  }
}

TEST(ScheduleContract, DroppingIntermediateValuesRepeatsNoReplay) {
  for (const ReplayOrder order : {ReplayOrder::kMemory, ReplayOrder::kRecursive}) {
    Options options = scheduled_options(1_MiB);
    options.replay_order = order;
    Program program(options);
    KeepsNothing runner;
    program.engine().set_schedule(&runner);
    std::vector<Tensor> chain(3, program.external(100_B));
    while (chain.size() < 25) {
      chain.push_back(program.op({chain[chain.size() - 3], chain.back()}, 100_B));
    }
    for (std::size_t i = 3; i + 1 < chain.size(); ++i) {
      program.drop(chain[i]);
    }
    program.evict(chain.back());
    program.engine().user().evict_everything();
    program.expect(chain.back());
    EXPECT_EQ(program.stats().replays, 22);
    program.check();
    program.engine().set_schedule(nullptr);
  }
}

// A chain that runs forward and backward under a schedule.
class ChainProgram {
 public:
  explicit ChainProgram(std::size_t most_ops = 1000)
      : runner_(program_.engine(), ScheduleKind::kSqrtN, 1_MiB, most_ops) {
    program_.engine().set_schedule(&runner_);
    program_.engine().set_observer(&runner_);
    input_ = program_.external(100_B);
  }
  ~ChainProgram() {
    program_.engine().set_schedule(nullptr);
    program_.engine().set_observer(nullptr);
  }
  ChainProgram(const ChainProgram&) = delete;
  ChainProgram& operator=(const ChainProgram&) = delete;

  [[nodiscard]] Program& program() { return program_; }
  [[nodiscard]] ScheduleRunner& runner() { return runner_; }
  [[nodiscard]] Tensor input() const { return input_; }

  // `before_backward` is called before each op of the backward pass.
  template <class Function>
  void step(Function&& before_backward) {
    std::vector<Tensor> chain{input_};
    for (int i = 0; i < 12; ++i) {
      chain.push_back(program_.op({chain.back()}, 100_B));
    }
    Tensor gradient = program_.op({chain.back()}, 100_B);
    while (chain.size() > 1) {
      before_backward();
      const Tensor next = program_.op({chain.back(), gradient}, 100_B);
      program_.drop(gradient);
      program_.drop(chain.back());
      chain.pop_back();
      gradient = next;
    }
    program_.drop(gradient);
    program_.check();
  }
  void step() {
    step([] {});
  }
  void end_step() {
    runner_.on_step("step");
    program_.check();
  }

 private:
  Program program_{scheduled_options(1_MiB)};
  ScheduleRunner runner_;
  Tensor input_ = 0;
};

// An op of another thread, which runs at the same time as ops of this one.
class OpElsewhere {
 public:
  OpElsewhere(Engine& engine, std::string_view name, StorageId input) : engine_(engine) {
    operand_[0] = {.storage = input, .value = {}, .reads = true};
    engine.op().begin(name, operand_);
  }
  void end() {
    const OpUses uses(operand_);
    OpRecord record{.inputs = uses.inputs, .written = {}, .fresh = {}};
    engine_.op().end(record, uses, operand_, {});
  }

 private:
  Engine& engine_;
  Operand operand_[1];
};

TEST(ScheduleContract, AnotherThreadMayEndAnOpDuringARestore) {
  ChainProgram chain;
  chain.step();
  chain.end_step();
  chain.step();
  chain.end_step();
  ASSERT_GT(chain.program().stats().replays, 0);
  for (std::uint64_t at = 0; at < 12; ++at) {
    std::uint64_t op = 0;
    chain.step([&] {
      if (op++ == at) {
        OpElsewhere other(chain.program().engine(), "other", chain.program().id(chain.input()));
        chain.program().device().during_kernel = [other]() mutable { other.end(); };
      }
    });
    chain.end_step();
  }
}

TEST(ScheduleContract, TooManyOpsAreNotAStep) {
  ChainProgram chain(30);
  chain.step();
  chain.step();
  chain.end_step();
  for (int i = 0; i < 3; ++i) {
    chain.step();
    EXPECT_EQ(chain.runner().driven(), std::int64_t{25} * i);
    chain.end_step();
  }
  chain.step();
  chain.step();  // too long while following a plan
  EXPECT_EQ(chain.runner().driven(), 3 * 25 + 5);
  chain.end_step();
  EXPECT_EQ(chain.runner().take_plans().plans.size(), 1U);
}

TEST(ScheduleContract, ConcurrentOpsHaveTheirOwnNames) {
  ChainProgram chain;
  std::promise<void> begun;
  std::promise<void> go_on;
  std::thread thread([&] {
    OpElsewhere other(chain.program().engine(), "other", chain.program().id(chain.input()));
    begun.set_value();
    go_on.get_future().wait();
    other.end();
  });
  begun.get_future().wait();
  chain.program().drop(chain.program().op({chain.input()}, 100_B));
  go_on.set_value();
  thread.join();
  chain.end_step();
  const ScheduleRunner::Plans made = chain.runner().take_plans();
  std::vector<std::string> names;
  for (const GraphOp& op : made.plans.front()->graph.ops) {
    names.push_back(made.names[op.name]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"test::op", "other"}));
}

// Micro-batches of 20 ops forward and 20 ops backward.
TraceGraph micro_batches(int count) {
  GraphBuilder builder(Bytes(0));
  std::uint32_t storages = 0;
  const auto op = [&](const std::vector<std::uint32_t>& inputs, std::int64_t size) {
    std::vector<TraceOperand> operands;
    for (const std::uint32_t input : inputs) {
      operands.push_back({.storage = input, .reads = true});
    }
    const std::vector<GraphBuilder::Fresh> fresh = {{.storage = storages, .size = Bytes(size)}};
    builder.add_op({.cost = Nanoseconds(10), .inputs = {}, .outputs = {}}, operands, fresh, true);
    return storages++;
  };
  for (int batch = 0; batch < count; ++batch) {
    std::vector<std::uint32_t> made = {op({}, 100)};
    while (made.size() < 20) {
      made.push_back(op({made.back()}, 100));
    }
    while (!made.empty()) {
      builder.end_storage(op({made.back()}, 1));
      builder.end_storage(made.back());
      made.pop_back();
    }
  }
  return builder.take();
}

TEST(ScheduleContract, EveryMicroBatchIsPlannedForTheBudget) {
  const std::vector<std::string> names = {"test::op"};
  for (const ScheduleKind kind : {ScheduleKind::kBudgeted, ScheduleKind::kRotor}) {
    for (const int count : {1, 2, 5}) {
      const TraceGraph graph = micro_batches(count);
      const Bytes budget(1200);  // the full size is 2000
      const Schedule schedule =
          plan_schedule(kind, {.graph = graph, .names = names, .budget = budget});
      EXPECT_LE(planned_peak(graph, schedule), budget.count()) << count << " micro-batches";
    }
  }
}

}  // namespace
}  // namespace recoup::detail
