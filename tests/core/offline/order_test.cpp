// Orders of a trace's ops: hand-written examples, and random traces compared with the checker and a
// simple bound.
#include "recoup/offline/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/core/support/order_trace.h"

namespace recoup {
namespace {

using Ops = std::vector<std::uint32_t>;

// The bound by its definition: at each op, the sum of all live storages.
Bytes plain_bound(const Trace& trace, const Ops& order) {
  constexpr int kNever = 1 << 30;
  struct Life {
    Bytes size;
    bool is_outside = false;
    bool is_kept = false;  // to the end of its last step
    int first_step = 0;
    int last_step = kNever;                        // the step in which it dies
    std::map<int, std::set<std::uint32_t>> users;  // by step
  };
  std::vector<Life> lives;
  std::map<std::uint32_t, int> step_of;
  int step = 0;
  bool any = false;  // whether this step has an op
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEvent::Kind::kExternal) {
      lives.push_back({.size = event.size, .is_outside = true, .first_step = step, .users = {}});
    } else if (event.kind == TraceEvent::Kind::kEscape) {
      lives[event.index].is_kept = true;
    } else if (event.kind == TraceEvent::Kind::kDie) {
      lives[event.index].last_step = step + (lives[event.index].is_kept ? 1 : 0);
    } else if (event.kind == TraceEvent::Kind::kStep) {
      step += any ? 1 : 0;
      any = false;
    } else {
      any = true;
      step_of[event.index] = step;
      for (const TraceOperand& use : trace.operands_of(trace.ops[event.index])) {
        lives[use.storage].users[step].insert(event.index);
      }
      for (const TraceFresh& fresh : trace.fresh_of(trace.ops[event.index])) {
        lives.push_back(
            {.size = fresh.nbytes, .first_step = step, .users = {{step, {event.index}}}});
      }
    }
  }
  Bytes bound{0};
  for (std::size_t at = 0; at < order.size(); ++at) {
    const int now = step_of[order[at]];
    Bytes live = trace.ops[order[at]].workspace;
    for (Life& life : lives) {
      const std::set<std::uint32_t>& users = life.users[now];
      const auto uses = [&](std::uint32_t op) { return users.contains(op); };
      const auto here = order.begin() + static_cast<std::ptrdiff_t>(at);
      const bool before = life.first_step < now || (life.is_outside && life.first_step == now) ||
                          std::any_of(order.begin(), here + 1, uses);
      const bool later = life.last_step > now || std::any_of(here, order.end(), uses);
      live += before && later && life.first_step <= now ? life.size : Bytes(0);
    }
    bound = std::max(bound, live);
  }
  return bound;
}

// a -> b, c -> d, and e -> f apart: 0 = a, 1 = e, 2 = b, 3 = c, 4 = d(b, c), 5 = f(e).
Trace diamond() {
  OrderTrace trace;
  const std::uint32_t a = trace.op({.reads = {}, .makes = {10_B}});
  const std::uint32_t e = trace.op({.reads = {}, .makes = {50_B}});
  const std::uint32_t b = trace.op({.reads = {a}, .makes = {10_B}});
  const std::uint32_t c = trace.op({.reads = {a}, .makes = {10_B}});
  const std::uint32_t d = trace.op({.reads = {b, c}, .makes = {10_B}});
  const std::uint32_t f = trace.op({.reads = {e}, .makes = {10_B}});
  for (const std::uint32_t storage : {a, e, b, c, d, f}) {
    trace.die(storage);
  }
  return trace.take();
}

TEST(Order, TraversalsByHand) {
  const Trace trace = diamond();
  EXPECT_EQ(order_ops(trace, "program", "none").ops, (Ops{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(order_ops(trace, "bfs", "none").ops, (Ops{0, 1, 2, 3, 5, 4}));
  EXPECT_EQ(order_ops(trace, "dfs", "none").ops, (Ops{0, 2, 3, 4, 1, 5}));
  EXPECT_EQ(order_ops(trace, "reverse-dfs", "none").ops, (Ops{0, 2, 3, 4, 1, 5}));
  // At the peak e and three of the diamond's storages are live; dfs runs the diamond without e.
  EXPECT_EQ(order_ops(trace, "dfs", "none").program_bound, 80_B);
  EXPECT_EQ(order_ops(trace, "bfs", "none").bound, 80_B);
  EXPECT_EQ(order_ops(trace, "dfs", "none").bound, 60_B);
  // e reads nothing, so both rules delay it until f.
  const OpOrder moved = order_ops(trace, "program", "fixed");
  EXPECT_EQ(moved.ops, (Ops{0, 2, 3, 4, 1, 5}));
  EXPECT_EQ(moved.moves, 1);
  EXPECT_EQ(moved.bound, 60_B);
}

// 0 = cast(weight), 1 = big(x), 2 = small(big), 3 = mm(cast, small)
TEST(Order, TheFixedRuleDelaysReadersOfVariables) {
  OrderTrace rows;
  const std::uint32_t weight = rows.external(100_B);
  const std::uint32_t x = rows.external(1_B);
  const std::uint32_t cast = rows.op({.reads = {weight}, .makes = {50_B}});
  const std::uint32_t big = rows.op({.reads = {x}, .makes = {200_B}});
  const std::uint32_t small = rows.op({.reads = {big}, .makes = {10_B}});
  rows.die(big);
  rows.op({.reads = {cast, small}, .makes = {1_B}});
  rows.die(cast);
  const Trace trace = rows.take();
  const OpOrder order = order_ops(trace, "program", "fixed");
  EXPECT_EQ(order.ops, (Ops{1, 2, 0, 3}));
  EXPECT_EQ(order.program_bound, 361_B);  // weight, x, cast, big, small
  EXPECT_EQ(order.bound, 311_B);          // without the cast
}

// 0 makes `from`, 1 = cheap(from), 2 makes `other`, 3 reads cheap and other, 4 reads from.
TEST(Order, TheDynamicRuleComparesLifetimes) {
  OrderTrace rows;
  const std::uint32_t from = rows.op({.reads = {}, .makes = {20_B}});
  const std::uint32_t cheap = rows.op({.reads = {from}, .makes = {30_B}});
  const std::uint32_t other = rows.op({.reads = {from}, .makes = {5_B}, .workspace = 40_B});
  rows.op({.reads = {cheap, other}, .makes = {1_B}});
  rows.die(cheap);
  rows.die(other);
  rows.op({.reads = {from}, .makes = {1_B}});
  rows.die(from);
  const Trace trace = rows.take();
  EXPECT_EQ(order_ops(trace, "program", "fixed").moves, 0);
  const OpOrder order = order_ops(trace, "program", "dynamic");
  EXPECT_EQ(order.ops, (Ops{0, 2, 1, 3, 4}));
  EXPECT_EQ(order.program_bound, 95_B);  // from, cheap, other, workspace
  EXPECT_EQ(order.bound, 65_B);
}

// Two steps of the same shape: ops stay in their step, and storages that live across steps count.
TEST(Order, StepsStayApart) {
  OrderTrace rows;
  const std::uint32_t kept = rows.op({.reads = {}, .makes = {1000_B}});
  const std::uint32_t gone = rows.op({.reads = {}, .makes = {500_B}});
  rows.step();
  const std::uint32_t next = rows.op({.reads = {}, .makes = {10_B}});
  rows.op({.reads = {kept, next}, .makes = {10_B}});
  rows.die(gone);
  const Trace trace = rows.take();
  for (const OrderInfo& traversal : traversals()) {
    const OpOrder order = order_ops(trace, traversal.name, "dynamic");
    EXPECT_EQ(std::set(order.ops.begin(), order.ops.begin() + 2), (std::set<std::uint32_t>{0, 1}));
    // No op of the second step uses `gone`, so it is not counted there.
    EXPECT_EQ(order.bound, 1500_B);
  }
}

TEST(Order, RandomTraces) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const Trace trace = random_trace(seed, 3 + static_cast<int>(seed));
    for (const OrderInfo& traversal : traversals()) {
      const Bytes alone = order_ops(trace, traversal.name, "none").bound;
      for (const OrderInfo& rule : long_life_rules()) {
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << ", " << traversal.name << ", " << rule.name);
        const OpOrder order = order_ops(trace, traversal.name, rule.name);
        ASSERT_EQ(check_order(trace, order.ops), "");
        EXPECT_EQ(order.bound, plain_bound(trace, order.ops));
        EXPECT_LE(order.bound, alone);
        EXPECT_EQ(order.program_bound, order_ops(trace, "program", "none").bound);
      }
    }
  }
}

// The bound of `recoup layout`: a storage lives until the program releases it.
Bytes most_live(const Trace& trace) {
  Bytes live{0};
  Bytes most{0};
  std::vector<Bytes> sizes;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEvent::Kind::kExternal) {
      sizes.push_back(event.size);
      live += event.size;
    } else if (event.kind == TraceEvent::Kind::kDie) {
      live -= sizes[event.index];
    } else if (event.kind == TraceEvent::Kind::kOp) {
      for (const TraceFresh& fresh : trace.fresh_of(trace.ops[event.index])) {
        sizes.push_back(fresh.nbytes);
        live += fresh.nbytes;
      }
      most = std::max(most, live + trace.ops[event.index].workspace);
    }
  }
  return most;
}

TEST(Reorder, MakesATraceWithTheBoundOfTheOrder) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Trace trace = random_trace(seed, 3 + static_cast<int>(seed));
    for (const OrderInfo& traversal : traversals()) {
      const OpOrder order = order_ops(trace, traversal.name, "dynamic");
      const Trace made = reorder(trace, order.ops);
      EXPECT_NO_THROW(validate(made));
      EXPECT_EQ(most_live(made), order.bound);
      // The program order of the new trace is the new order, and its bound does not change.
      const OpOrder again = order_ops(made, "program", "none");
      EXPECT_EQ(again.bound, order.bound);
      ASSERT_EQ(made.ops.size(), order.ops.size());
      for (std::size_t at = 0; at < made.ops.size(); ++at) {
        EXPECT_EQ(made.ops[at].kernel, trace.ops[order.ops[at]].kernel);
      }
    }
  }
}

TEST(Reorder, KeepsPinsAndBlocksInOrder) {
  Trace trace = diamond();
  const auto event = [](TraceEvent::Kind kind, std::uint32_t index, Bytes size = Bytes(0)) {
    return TraceEvent{.kind = kind, .index = index, .size = size};
  };
  // A block becomes storage 6 after op 4; storage 2 (b) is pinned from op 2 until after op 4.
  trace.events.insert(trace.events.begin() + 3, event(TraceEvent::Kind::kPin, 2));
  trace.events.insert(
      trace.events.begin() + 6,
      {event(TraceEvent::Kind::kUnpin, 2), event(TraceEvent::Kind::kAllocate, 0, 8_B),
       event(TraceEvent::Kind::kAllocate, 0, 9_B), event(TraceEvent::Kind::kFree, 0),
       event(TraceEvent::Kind::kAdopt, 1, 9_B)});
  trace.ops[5].first_fresh = 5;
  trace.events.push_back(event(TraceEvent::Kind::kScopeExit, 0));
  validate(trace);
  const Trace made = reorder(trace, order_ops(trace, "dfs", "none").ops);
  validate(made);
  std::vector<TraceEvent::Kind> kinds;
  for (const TraceEvent& each : made.events) {
    if (each.kind != TraceEvent::Kind::kDie) {
      kinds.push_back(each.kind);
    }
  }
  using Kind = TraceEvent::Kind;
  EXPECT_EQ(kinds, (std::vector{Kind::kAllocate, Kind::kAllocate, Kind::kAdopt, Kind::kOp,
                                Kind::kOp, Kind::kPin, Kind::kOp, Kind::kOp, Kind::kOp, Kind::kOp,
                                Kind::kUnpin, Kind::kFree, Kind::kScopeExit}));
}

TEST(Order, AnUnknownNameListsTheKnownOnes) {
  const Trace trace = diamond();
  const auto words = [&](std::string_view traversal, std::string_view rule) -> std::string {
    try {
      order_ops(trace, traversal, rule);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(words("best", "none"),
            "unknown traversal 'best'; choose one of program, bfs, dfs, reverse-dfs");
  EXPECT_EQ(words("bfs", "long"),
            "unknown long-life rule 'long'; choose one of none, fixed, dynamic");
  EXPECT_TRUE(order_ops(Trace{}, "dfs", "dynamic").ops.empty());
}

// Checks the error of check_order() for an order.
class CheckOrder : public testing::Test {
 protected:
  void expect_wrong(const Ops& order, const std::string& words) {
    const Trace trace = rows_.take();
    Ops program(trace.ops.size());
    for (std::uint32_t i = 0; i < program.size(); ++i) {
      program[i] = i;
    }
    EXPECT_EQ(check_order(trace, program), "");
    EXPECT_NE(check_order(trace, order).find(words), std::string::npos)
        << check_order(trace, order);
  }
  OrderTrace rows_;
};

TEST_F(CheckOrder, OpsMissing) {
  rows_.op({.reads = {}, .makes = {1_B}});
  rows_.op({.reads = {}, .makes = {1_B}});
  expect_wrong({0, 0}, "differ from the 2 ops of the trace");
}
TEST_F(CheckOrder, InputNotMade) {
  rows_.op({.reads = {rows_.op({.reads = {}, .makes = {1_B}})}, .makes = {1_B}});
  expect_wrong({1, 0}, "op 1 (op) uses a value that has not been computed yet");
}
TEST_F(CheckOrder, ReadAfterALaterWrite) {
  const std::uint32_t x = rows_.external(1_B);
  rows_.op({.reads = {x}, .makes = {1_B}});
  rows_.op({.reads = {}, .writes = {x}});
  expect_wrong({1, 0}, "op 0 (op) reads other content");
}
TEST_F(CheckOrder, TheLastWriteIsAnother) {
  const std::uint32_t x = rows_.external(1_B);
  rows_.op({.reads = {}, .writes = {x}, .overwrites = true});
  rows_.op({.reads = {}, .writes = {x}, .overwrites = true});
  expect_wrong({1, 0}, "a storage has other content at the end");
}
TEST_F(CheckOrder, RandomNumbersInAnotherOrder) {
  rows_.op({.reads = {}, .makes = {1_B}, .random = true});
  rows_.op({.reads = {}, .makes = {1_B}, .random = true});
  expect_wrong({1, 0}, "draws random numbers");
}
TEST_F(CheckOrder, UnknownEffectsInAnotherOrder) {
  const std::uint32_t x = rows_.external(1_B);
  rows_.op({.reads = {x}, .makes = {1_B}, .repeatable = false});
  rows_.op({.reads = {x}, .makes = {1_B}, .repeatable = false});
  expect_wrong({1, 0}, "has side effects");
}
TEST_F(CheckOrder, BeforeTheProgramKnows) {
  const std::uint32_t x = rows_.external(1_B);
  rows_.op({.reads = {x}});  // item()
  rows_.op({.reads = {}, .makes = {1_B}});
  expect_wrong({1, 0}, "op 1 (op) runs before the program has read");
}
TEST_F(CheckOrder, BeforeTheProgramCouldSee) {
  rows_.escape(rows_.op({.reads = {}, .makes = {1_B}}));  // numpy()
  rows_.op({.reads = {}, .makes = {1_B}});
  expect_wrong({1, 0}, "op 1 (op) runs before the program has read");
}
TEST_F(CheckOrder, BeforeAWriteThatTheProgramSees) {
  const std::uint32_t x = rows_.external(1_B);
  rows_.escape(x);
  rows_.op({.reads = {}, .writes = {x}});
  rows_.op({.reads = {}, .makes = {1_B}});
  expect_wrong({1, 0}, "op 1 (op) runs before the program has read");
}
TEST_F(CheckOrder, OutOfItsStep) {
  rows_.op({.reads = {}, .makes = {1_B}});
  rows_.step();
  rows_.op({.reads = {}, .makes = {1_B}});
  expect_wrong({1, 0}, "op 0 (op) is in another step than in the program");
}

}  // namespace
}  // namespace recoup
