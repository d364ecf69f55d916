// DTR's theorem (section 3 and appendix A of the paper) on long chains. No part of a simulation may
// recurse as deep as replays nest.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "csrc/trace/sink.h"
#include "recoup/offline/traces.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

constexpr Bytes kActivation =
    64_MiB;  // so that 1 % of the budgets holds the metadata of the whole chain

class Chain {
 public:
  Chain() {
    builder_.add_name("op");
    builder_.add_kernel({{{.kind = KernelStep::Kind::kAllocate, .index = 0, .size = kActivation}}});
  }
  // Returns the id of the storage that it makes.
  std::uint32_t op(std::initializer_list<std::uint32_t> inputs) {
    TraceOp op;
    op.cost = Nanoseconds(1);
    std::vector<TraceOperand> operands;
    for (const std::uint32_t input : inputs) {
      operands.push_back({.storage = input, .reads = true});
    }
    builder_.add_op(op, operands, {{{.allocation = 0, .nbytes = kActivation}}});
    return storages_++;
  }
  void event(TraceEvent::Kind kind, std::uint32_t storage) {
    builder_.add_event({.kind = kind, .index = storage, .size = Bytes(0)});
  }
  void die(std::uint32_t storage) { event(TraceEvent::Kind::kDie, storage); }
  Trace take() { return builder_.take(); }

 private:
  TraceBuilder builder_;
  std::uint32_t storages_ = 0;
};

//   f1 -> f2 -> ... -> fN           f[i + 1] = forward(f[i])
//    \     \            \           g[i] = backward(f[i], g[i + 1]), then f[i] and g[i + 1] die
//   g1 <- g2 <- ... <- gN
Trace training_chain(std::uint32_t length) {
  Chain chain;
  for (std::uint32_t i = 0; i < length; ++i) {
    i == 0 ? chain.op({}) : chain.op({i - 1});
  }
  std::uint32_t gradient = chain.op({length - 1});
  chain.die(length - 1);
  for (std::uint32_t i = length - 1; i-- > 0;) {
    const std::uint32_t next = chain.op({i, gradient});
    chain.die(i);
    chain.die(gradient);
    gradient = next;
  }
  return chain.take();
}

SimulationResult run(const Trace& trace, std::string policy, std::int64_t units) {
  Options options;
  options.budget = Bytes(units * kActivation.count());
  options.policy = std::move(policy);
  options.small_filter = false;
  options.sampling = false;
  options.max_replay_ratio = 0;
  options.max_depth = std::numeric_limits<std::int32_t>::max();
  return simulate(trace, {.engine = options, .max_time_ratio = 0});
}

SimulationResult train(const std::string& policy, std::uint32_t length) {
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(length)));
  const SimulationResult result = run(training_chain(length), policy, 2 * root);
  EXPECT_EQ(result.status, SimulationResult::Status::kOk) << result.reason;
  EXPECT_EQ(result.ops, 2 * std::int64_t{length});
  EXPECT_LE(result.stats.peak_bytes, 2 * root * kActivation.count());
  return result;
}

double ops_over_length(const std::string& policy, std::uint32_t length) {
  const SimulationResult result = train(policy, length);
  return static_cast<double>(result.ops + result.stats.replays) / length;
}

// Calls the function on a thread with stack for about a hundred calls. One call per op would crash.
void on_a_small_stack(const std::function<void()>& function) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread{};
  const auto call = [](void* what) -> void* {
    (*static_cast<const std::function<void()>*>(what))();
    return nullptr;
  };
  void* const argument = const_cast<std::function<void()>*>(&function);
  ASSERT_EQ(pthread_create(&thread, &attributes, call, argument), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(TraceChain, TakesLinearWork) {
  for (const std::uint32_t length : {100U, 200U, 400U, 800U, 1'600U, 6'400U, 25'600U}) {
    EXPECT_LE(ops_over_length("dtr-eq", length), 4) << "N = " << length;
  }
  for (const std::uint32_t length : {100U, 800U, 1'600U}) {
    EXPECT_LE(ops_over_length("dtr", length), 4) << "N = " << length;
  }
}

TEST(TraceChain, LruTakesMoreThanLinearWork) {
  double before = 0;
  for (const std::uint32_t length : {100U, 400U, 1'600U}) {
    const double ops = ops_over_length("lru", length);
    EXPECT_GT(ops, 1.5 * before) << "N = " << length;
    before = ops;
  }
}

TEST(TraceChain, DeepReplaysNeedNoRecursion) {
  static constexpr std::uint32_t kLength = 4'000;
  on_a_small_stack([] {
    EXPECT_GT(train("lru", kLength).stats.replay_depth_max, kLength / 2);
    for (const char* policy : {"dtr-eq", "dtr", "msps"}) {  // these traverse long neighborhoods
      EXPECT_GE(train(policy, 800).stats.replay_depth_max, 15) << policy;
    }
  });
}

// f1 -> f2 -> ... -> fN, of which only fN is held. It is evicted, restored and dropped.
TEST(TraceChain, AVeryLongLineageNeedsNoRecursion) {
  static constexpr std::uint32_t kLength = seeds(100'000, 30'000);
  on_a_small_stack([] {
    Chain chain;
    std::uint32_t last = chain.op({});
    while (last + 1 < kLength) {
      const std::uint32_t next = chain.op({last});
      chain.die(last);
      last = next;
    }
    for (const auto kind : {TraceEvent::Kind::kEvict, TraceEvent::Kind::kPin,
                            TraceEvent::Kind::kUnpin, TraceEvent::Kind::kDie}) {
      chain.event(kind, last);
    }
    const Trace trace = chain.take();
    for (const char* policy : {"dtr-eq", "dtr", "lru"}) {
      const SimulationResult result = run(trace, policy, 40);
      EXPECT_EQ(result.status, SimulationResult::Status::kOk) << result.reason;
      EXPECT_EQ(result.stats.replay_depth_max, kLength) << policy;
      EXPECT_EQ(result.stats.live_ops, 0) << policy;
    }
  });
}

}  // namespace
}  // namespace recoup::detail
