// One random program on an engine with random settings, and the properties that must always hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/engine/base/observers.h"
#include "tests/core/support/chaos_schedule.h"
#include "tests/core/support/engine_program.h"

namespace recoup::detail {

inline constexpr int kSteps = 60;
inline constexpr Bytes kGenerous = 1_MiB;  // more bytes than any program makes

// Logs the decisions of an engine in order.
class Decisions final : public Observer {
 public:
  void on_evict(ValueId value) override { log.push_back({'e', value.index(), 0}); }
  void on_replay(std::string_view /*name*/, OpId /*id*/, const Op& op) override {
    log.push_back({'r', op.sequence, 0});
  }
  void on_move(ValueId value, PoolOffset to) override {
    log.push_back({'m', value.index(), to.count()});
  }
  void on_spill(ValueId value) override { log.push_back({'s', value.index(), 0}); }
  void on_fetch(ValueId value) override { log.push_back({'f', value.index(), 0}); }

  std::vector<std::tuple<char, std::uint64_t, std::int64_t>> log;
};

// A next-use predictor that names random storages, live ones among them, in random order.
class RandomNextUses final : public UseForecast {
 public:
  RandomNextUses(Program& program, std::uint64_t seed) : program_(program), random_(seed) {}

  bool uses_ahead(std::uint32_t n, std::vector<StorageId>& storages) const override {
    const std::vector<Tensor>& live = program_.live();
    if (n > 3 || live.empty()) {
      return false;
    }
    for (std::size_t i = random_() % 3; i > 0; --i) {
      storages.push_back(program_.id(live[random_() % live.size()]));
    }
    return true;
  }
  std::optional<std::uint32_t> next_use(StorageId /*storage*/) const override { return {}; }
  ValueId next_to_write() override { return {}; }
  double waited_part() const override { return 1; }

 private:
  Program& program_;
  mutable std::mt19937_64 random_;
};

// One random program.
class Fuzzer {
 public:
  // `kinetic`: whether searches through all candidates use their kinetic order; nullopt: a random
  // kind of search.
  Fuzzer(std::string_view policy, std::uint64_t seed, std::optional<bool> kinetic = {},
         const TestAids& aids = {})
      : random_(seed),
        options_(draw_options(policy, kinetic, aids)),
        program_(options_, seed % 2 == 0 ? PageSizes{.page = 128_B, .huge = 1_KiB} : PageSizes()) {
    if (chance(30)) {
      runner_.emplace(program_.engine(), random_());
      program_.engine().set_schedule(&*runner_);
    }
    observers_ = {runner_ ? &*runner_ : nullptr, &decisions_};
    program_.engine().set_observer(&observers_);
    if (options_.spill > Bytes(0) && seed % 3 > 0 && !runner_) {
      next_use_predictor_.emplace(program_, seed);
      program_.engine().set_forecast(&*next_use_predictor_);
    }
  }

  [[nodiscard]] const Decisions& decisions() const { return decisions_; }
  [[nodiscard]] Stats stats() const { return program_.stats(); }
  // The number of faults that test aids injected, of either kind.
  [[nodiscard]] std::int64_t faults() const { return faults_; }

  void run() {
    for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      try {
        act();
      } catch (const OutOfBudget& error) {
        judge(error.report());
      } catch (const KernelFailed&) {
      } catch (const FetchFailed&) {
      } catch (const InjectedFault&) {
        ++faults_;
      } catch (const std::bad_alloc&) {
      }
      quiet();
      program_.check();
      if (step % 8 == 7) {
        read_all();
      }
    }
    if (!testing::Test::HasFailure()) {
      finish();
    }
  }

 private:
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool chance(int percent) { return number(1, 100) <= percent; }
  Bytes size() { return Bytes(chance(10) ? number(1, 64) : number(65, 400)); }

  Options draw_options(std::string_view policy, std::optional<bool> kinetic, const TestAids& aids) {
    Options options;
    options.aids = aids;
    options.budget = chance(20) ? kGenerous : Bytes(number(15, 90) * 64 + number(0, 63));
    options.policy = policy;
    options.small_result_bytes = 64_B;  // a tenth of the sizes below
    if (chance(30)) {
      options.block_size = Bytes(64 * number(14, 20));
    }
    if (chance(50)) {
      options.sampling = chance(50);
      options.small_filter = chance(50);
    }
    options.usefulness = chance(70);
    options.replay_order = chance(60) ? ReplayOrder::kMemory : ReplayOrder::kRecursive;
    options.max_replay_ratio = chance(20) ? 0.0 : 10.0;
    options.max_depth = chance(20) ? 4 : 10000;
    options.evict_after_op = chance(15);
    options.check_replays = chance(25);
    options.seed = random_();
    options.chain_cost = options.seed % 2 == 0;
    if (options.seed / 2 % 5 < 2) {
      options.spill_unit = 64_B;
      options.spill = Bytes(static_cast<std::int64_t>(options.seed / 16 % 80) * 64);
      const bool cheap = options.seed / 2048 % 2 == 0;
      options.spill_compares = options.seed / 4096 % 2 == 0;
      options.spill_write_ns_per_byte = cheap ? 0.001 : 2.0;
      options.spill_read_ns_per_byte = cheap ? 0.001 : 1.0;
    }
    options.reuse_operands = options.seed / 8 % 4 != 0;
    options.in_place = chance(75) ? InPlace::kShare : InPlace::kCopy;
    options.placement = chance(50) ? Placement::kBestFit : Placement::kTwoEnded;
    if (kinetic) {
      options.kinetic = kinetic;
      options.sampling = false;
    }
    return options;
  }

  // Distinct live storages.
  std::vector<Tensor> some(std::int64_t most) {
    std::set<Tensor> chosen;
    if (!program_.live().empty()) {
      for (std::int64_t i = number(0, most); i > 0; --i) {
        chosen.insert(any());
      }
    }
    return {chosen.begin(), chosen.end()};
  }
  Tensor any() {
    const auto last = static_cast<std::int64_t>(program_.live().size()) - 1;
    return program_.live()[static_cast<std::size_t>(number(0, last))];
  }

  void act() {
    if (program_.live().size() > 14) {
      drop(any());
    }
    if (!program_.live().empty() && chance(10)) {
      learn_cost(any());
    }
    const std::int64_t dice = program_.live().empty() ? 0 : number(0, 99);
    if (dice < 60) {
      disturb();
      program_.run(draw_call());
    } else if (dice < 76) {
      drop(any());
    } else if (dice < 80) {
      program_.external(size());
    } else if (dice < 84) {
      program_.evict(any());
    } else if (dice < 88) {
      program_.expect(any());
    } else if (dice < 90) {
      program_.engine().user().evict_everything();
    } else if (dice < 93) {
      program_.pin(any());
    } else if (dice < 95) {
      const Tensor tensor = any();
      if (program_.pins(tensor) > 0) {
        program_.unpin(tensor);
      }
    } else {
      act_rarely();
    }
  }

  // A cost that the device reports after the op has ended.
  void learn_cost(Tensor tensor) {
    Engine& engine = program_.engine();
    const ValueTicket made = engine.values().ticket(engine.current(program_.id(tensor)));
    engine.op().learn_cost(made, Nanoseconds(100), Nanoseconds(number(1, 5000)));
  }

  void act_rarely() {
    const Tensor tensor = any();
    switch (number(0, 6)) {
      case 6:
        program_.set_rule(tensor, chance(30) ? StorageRule::kStays : StorageRule::kOffTier);
        break;
      case 0:
        program_.escape(tensor);
        program_.foreign_write(tensor);
        break;
      case 1:
        program_.escape_and_leave(tensor);
        program_.foreign_write(tensor);
        break;
      case 2:
        if (program_.escaped(tensor)) {
          program_.foreign_write(tensor);
        }
        break;
      case 3:
        program_.storage(tensor).shared |= program_.value(tensor).block.valid();
        break;
      case 4:
        (void)program_.engine().defragment({}, Bytes(0));
        break;
      case 5:
        if (options_.budget < kGenerous) {
          program_.grow(program_.engine().budget() + Bytes(number(1, 400)));
        }
        break;
      default:
        break;
    }
  }

  Call draw_call() {
    Call call{.arguments = {}, .fresh = {}};
    for (Tensor tensor : some(3)) {
      Access access = Access::kRead;
      if (chance(30)) {
        access = chance(70) ? Access::kUpdate : Access::kOverwrite;
      }
      call.arguments.push_back({.tensor = tensor, .access = access});
    }
    std::shuffle(call.arguments.begin(), call.arguments.end(), random_);
    for (std::int64_t i = number(0, 2); i > 0; --i) {
      call.fresh.push_back(size());
    }
    for (std::int64_t i = chance(30) ? number(1, 2) : 0; i > 0; --i) {
      call.workspace.push_back(size());
    }
    call.cost = Nanoseconds(number(1, 1000));
    call.repeatable = chance(90);
    call.stops_half_way = chance(4);
    if (may_be_in_place(call) && chance(60)) {
      call.overwritable = true;
      if (!call.arguments.empty() && !call.fresh.empty()) {
        call.fresh.front() = program_.storage(call.arguments.front().tensor).nbytes;
      }
    }
    arguments_ = call.arguments;
    return call;
  }

  // Failures, and actions of another thread, during the next kernels.
  void disturb() {
    if (chance(6)) {
      program_.device().fail_allocation(number(1, 6));
    }
    if (chance(4)) {
      program_.device().fail_kernel(number(1, 4));
    }
    if (options_.spill > Bytes(0)) {
      program_.device().fail_spill(chance(2) ? number(1, 6) : 0);
      program_.device().fail_fetch(chance(3) ? number(1, 4) : 0);
    }
    if (chance(10)) {
      program_.device().during_kernel = [this] { elsewhere(); };
    }
  }
  void elsewhere() {
    const Tensor tensor = program_.live().empty() ? 0 : any();
    if (!program_.live().empty() && chance(50) &&
        std::none_of(arguments_.begin(), arguments_.end(),
                     [&](const Argument& a) { return a.tensor == tensor; })) {
      drop(tensor);
      return;
    }
    try {
      program_.engine().free(program_.engine().allocate(size()));
    } catch (const OutOfBudget& error) {
      judge(error.report());
    }
  }
  void quiet() {
    program_.device().fail_allocation(0);
    program_.device().fail_kernel(0);
    program_.device().fail_spill(0);
    program_.device().fail_fetch(0);
    program_.device().during_kernel = nullptr;
  }

  void drop(Tensor tensor) {
    while (program_.pins(tensor) > 0) {
      program_.unpin(tensor);
    }
    if (program_.storage(tensor).external && chance(30)) {
      program_.abandon(tensor);
    } else {
      program_.drop(tensor);
    }
  }

  void read_all() {
    const std::vector<Tensor> all = program_.live();
    for (Tensor tensor : all) {
      try {
        program_.expect(tensor);
      } catch (const OutOfBudget& error) {
        judge(error.report());
      } catch (const InjectedFault&) {
        ++faults_;
      }
    }
    program_.check();
  }

  // An OutOfBudget error is legal only if everything evictable was evicted and that was not enough.
  void judge(const OutOfBudgetReport& report) {
    if (report.reason.find("a test aid made") != std::string::npos) {
      EXPECT_GT(options_.aids.fail_allocation, 0);
      ++faults_;
      return;
    }
    if (report.reason == Handover::kNotTaken) {
      return;
    }
    EXPECT_LT(options_.budget, kGenerous) << report.to_string();
    EXPECT_GT(report.enough, report.budget) << report.to_string();
    if (!report.fragmented && report.asked > Bytes(0)) {
      if (report.external + report.asked <= report.budget) {  // otherwise no eviction was tried
        EXPECT_EQ(report.evictable, Bytes(0)) << report.to_string();
      }
      EXPECT_GT(report.external + report.non_recomputable + report.pinned + report.workspace +
                    report.asked,
                report.budget)
          << report.to_string();
    }
  }

  void finish() {
    Engine& engine = program_.engine();
    engine.set_test_aids({});
    if (runner_) {
      runner_->release_all();
    }
    if (engine.budget() < kGenerous) {
      program_.grow(kGenerous);
    }
    program_.expect_all();
    program_.check();
    engine.user().materialize_all();
    program_.check();
    for (Tensor tensor : std::vector<Tensor>(program_.live())) {
      EXPECT_TRUE(program_.non_recomputable(tensor) && program_.resident(tensor));
      while (program_.pins(tensor) > 0) {
        program_.unpin(tensor);
      }
      program_.drop(tensor);
    }
    program_.device().sweep_external();
    program_.check();
    EXPECT_EQ(engine.charged(), Bytes(0));
    EXPECT_EQ(engine.stats().live_values, 0);
    EXPECT_EQ(engine.stats().live_ops, 0);
  }

  std::mt19937_64 random_;
  Options options_;
  Program program_;
  std::vector<Argument> arguments_;  // of the running op
  std::int64_t faults_ = 0;
  std::optional<ChaosSchedule> runner_;
  std::optional<RandomNextUses> next_use_predictor_;
  Decisions decisions_;
  Observers observers_;
};

// For a longer run: RECOUP_PROGRAMS=100000 build/core/tests/recoup_core_tests
// --gtest_filter=*Random*
inline std::uint64_t programs(std::uint64_t unless_asked) {
  const char* const asked = std::getenv("RECOUP_PROGRAMS");
  return asked == nullptr ? unless_asked : std::stoull(asked);
}

}  // namespace recoup::detail
