// Random and mutated traces: a file is either refused as invalid, or every operation on the trace
// works.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "csrc/trace/graph.h"
#include "csrc/trace/step.h"
#include "recoup/offline/layout.h"
#include "recoup/offline/order.h"
#include "recoup/offline/traces.h"
#include "recoup/policy.h"
#include "tests/core/support/order_trace.h"
#include "tests/core/support/recorded_trace.h"
#include "tests/core/support/trace_bytes.h"

namespace recoup::detail {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// `make fuzz` runs more rounds.
std::uint64_t rounds() { return from_environment("RECOUP_FUZZ_ROUNDS", 800); }
std::uint64_t first_seed() { return from_environment("RECOUP_FUZZ_SEED", 1); }

class Fuzzer {
 public:
  Fuzzer(std::uint64_t seed, const std::string& path) : random_(seed), path_(path) {}

  // Returns whether the file was accepted as a trace.
  bool run() {
    std::vector<Record> records = records_of(seed_trace());
    if (below(3) == 0) {
      splice(records, records_of(seed_trace()));
    }
    for (std::size_t n = below(5); n > 0 && !records.empty(); --n) {
      mutate(records);
    }
    put_bytes(path_, file_of(records));
    Trace trace;
    try {
      trace = read_trace(path_);
    } catch (const BadTrace& error) {
      EXPECT_NE(std::string(error.what()).find(": offset "), std::string::npos) << error.what();
      return false;
    }
    use(trace);
    return true;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  template <class T>
  const T& any(const std::vector<T>& of) {
    return of[below(of.size())];
  }

  Trace seed_trace() {
    const std::uint64_t seed = random_();
    const int length = static_cast<int>(below(120));
    static constexpr unsigned kBits[] = {4, 10, 16, 30, 44};
    return below(3) == 0 ? recoup::random_trace(seed, length)
                         : RandomTrace(seed, kBits[below(std::size(kBits))]).make(length);
  }
  static std::vector<Record> records_of(const Trace& trace) {
    RecordSink sink;
    tell(trace, sink);
    return sink.take();
  }

  void splice(std::vector<Record>& records, const std::vector<Record>& other) {
    if (records.empty() || other.empty()) {
      return;
    }
    const std::size_t from = below(other.size());
    const std::size_t count = below(other.size() - from) + 1;
    const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
    records.insert(records.begin() + static_cast<std::ptrdiff_t>(below(records.size() + 1)), first,
                   first + static_cast<std::ptrdiff_t>(count));
  }

  void mutate(std::vector<Record>& records) {
    const std::size_t at = below(records.size());
    const auto here = records.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0:
        records.erase(here);
        break;
      case 1:
        records.insert(here, Record(any(records)));
        break;
      case 2:
        std::swap(records[at], records[below(records.size())]);
        break;
      case 3:
        records.insert(here, stray_record());
        break;
      default:
        change(records[at]);
        break;
    }
  }

  Record stray_record() {
    Record record{.tag = below(10) == 0 ? below(40) : 16 + below(15)};
    for (std::size_t n = below(4); n > 0; --n) {
      record.numbers.push_back(number(0));
    }
    return record;
  }

  void change(Record& record) {
    std::vector<std::uint64_t>* const lists[] = {&record.numbers, &record.operands,
                                                 &record.results};
    std::vector<std::uint64_t>& list = *lists[below(3)];
    const std::size_t kind = below(8);
    if (kind == 0) {
      record.tag = number(record.tag);
    } else if (list.empty() || kind == 1) {
      list.push_back(number(0));
    } else if (kind == 2) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(below(list.size())));
    } else {
      std::uint64_t& each = list[below(list.size())];
      each = number(each);
    }
    if (!record.text.empty() && kind == 3) {
      record.text[below(record.text.size())] = static_cast<char>(random_());
    }
  }

  std::uint64_t number(std::uint64_t before) {
    switch (below(8)) {
      case 0:
        return before + 1;
      case 1:
        return before - 1;
      case 2:
        return before ^ (std::uint64_t{1} << below(64));
      case 3:
        return std::uint64_t{1} << below(64);
      case 4:
        return (std::uint64_t{1} << below(64)) - 1;
      case 5:
        return random_() >> below(64);
      default:
        return below(9);
    }
  }

  void use(const Trace& trace) {
    write_trace(trace, path_);
    EXPECT_EQ(read_trace(path_), trace);
    simulate_it(trace);
    (void)build_graph(trace, Bytes(static_cast<std::int64_t>(below(2000))));
    cut_steps(trace);
    order_it(trace);
    lay_out(trace);
  }

  void simulate_it(const Trace& trace) {
    const Bytes peak = unbudgeted_peak(trace, {});
    for (int n = 0; n < 4; ++n) {
      SCOPED_TRACE(testing::Message() << "simulation " << n);
      SimulationOptions options;
      options.engine.policy = any(policies_).name;
      options.engine.budget =
          Bytes(1 + static_cast<std::int64_t>(static_cast<double>(peak.count()) *
                                              static_cast<double>(below(110)) / 100));
      if (!trace.plans.empty() && below(2) == 0) {
        options.engine.policy = "planned";
        options.engine.budget = std::max(any(trace.plans).budget, Bytes(1));
      }
      options.engine.small_result_bytes = Bytes(static_cast<std::int64_t>(below(2) * 1024));
      options.engine.usefulness = below(4) != 0;
      options.engine.cost_model = below(4) == 0 ? CostModel::kBytes : CostModel::kMeasured;
      options.engine.in_place = below(4) == 0 ? InPlace::kCopy : InPlace::kShare;
      options.engine.replay_order = below(4) == 0 ? ReplayOrder::kRecursive : ReplayOrder::kMemory;
      options.engine.evict_after_op = below(8) == 0;
      if (below(2) == 0) {
        options.engine.spill_unit = Bytes(64);
        options.engine.spill = Bytes(peak.count() / 64 * static_cast<std::int64_t>(below(64)));
      }
      if (below(2) == 0) {
        options.engine.page_window = Bytes(1 + peak.count() / 1024);
        options.engine.aids.page = below(2) == 0;
      }
      if (below(4) == 0) {  // bytes only, without fragmentation
        options.engine.addresses =
            Bytes(std::max(options.engine.budget.count(), std::int64_t{1} << 40) << 8);
      }
      const SimulationResult result = simulate(trace, options);
      EXPECT_EQ(result.reason.empty(), result.status != SimulationResult::Status::kOutOfBudget);
      EXPECT_GE(result.time_ratio(), 1.0);
      if (below(4) == 0) {
        (void)timeline(trace, options);
      }
    }
  }

  void cut_steps(const Trace& trace) {
    const auto steps = static_cast<std::size_t>(std::count_if(
        trace.events.begin(), trace.events.end(),
        [](const TraceEvent& event) { return event.kind == TraceEvent::Kind::kStep; }));
    if (steps > 0) {
      EXPECT_NO_THROW(validate(step_of(trace, below(steps))));
    }
  }

  void order_it(const Trace& trace) {
    const OpOrder order = order_ops(trace, any(traversals_).name, any(rules_).name);
    EXPECT_EQ(check_order(trace, order.ops), "");
    try {
      validate(reorder(trace, order.ops));
    } catch (const BadTrace& error) {  // external storages are moved to the start of their step
      EXPECT_NE(std::string(error.what()).find("alive at once"), std::string::npos) << error.what();
    }
  }

  // As `recoup layout` does: a buffer for every storage.
  void lay_out(const Trace& trace) {
    const TraceGraph graph = build_graph(trace, Bytes(0));
    LayoutProblem problem;
    for (const GraphValue& value : graph.values) {
      problem.buffers.push_back({.name = std::to_string(problem.buffers.size()),
                                 .lower = value.born,
                                 .upper = std::max(value.dies, value.born + 1),
                                 .size = value.size});
    }
    (void)plan_layout(problem, "greedy-by-size", {});
  }

  std::mt19937_64 random_;
  std::string path_;
  std::vector<PolicyInfo> policies_{policies().begin(), policies().end()};
  std::vector<OrderInfo> traversals_{traversals().begin(), traversals().end()};
  std::vector<OrderInfo> rules_{long_life_rules().begin(), long_life_rules().end()};
};

TEST(TraceFuzz, AFileIsRefusedOrFullyUsable) {
  const std::string path = testing::TempDir() + "recoup_fuzz_" + std::to_string(first_seed());
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; i < rounds() && !testing::Test::HasFailure(); ++i) {
    const std::uint64_t seed = first_seed() * 1'000'003 + i;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    try {
      taken += Fuzzer(seed, path).run() ? 1U : 0U;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(taken, rounds() / 20);
  EXPECT_LT(taken, rounds() - rounds() / 10);
  if (!testing::Test::HasFailure()) {
    std::filesystem::remove(path);  // otherwise it is the trace that failed
  }
}

}  // namespace
}  // namespace recoup::detail
