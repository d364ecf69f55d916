#include "csrc/lineage/lineage.h"

#include <gtest/gtest.h>

#include <optional>

#include "recoup/errors.h"
#include "tests/core/support/lineage_graph.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

// Demand computed from scratch: all readers of a value are younger than its producer, so one pass
// from the youngest op to the oldest suffices.
struct Demand {
  explicit Demand(const LineageGraph& graph) {
    for (auto op = graph.ops().rbegin(); op != graph.ops().rend(); ++op) {
      demanding[op->id] = std::any_of(op->outputs.begin(), op->outputs.end(), [&](ValueId id) {
        return graph.lineage[id].evicted() && needed(graph.lineage[id], id);
      });
      for (const ValueId input : op->inputs) {
        of[input] += demanding[op->id] ? 1 : 0;
      }
    }
  }
  bool needed(const Value& value, ValueId id) {
    return value.storage.valid() || value.soft_pins > 0 ||
           (value.hard_pins > 0 && !value.writing) || of[id] > 0;
  }

  std::map<ValueId, std::int32_t> of;
  std::map<OpId, bool> demanding;
};

// Only values that are held, or read by an op that has outputs left, may have records.
void expect_no_garbage(const LineageGraph& graph) {
  for (const PlainOp& op : graph.ops()) {
    ASSERT_FALSE(op.outputs.empty());
  }
  std::set<ValueId> read;
  for (const PlainOp& op : graph.ops()) {
    read.insert(op.inputs.begin(), op.inputs.end());
  }
  for (const ValueId id : graph.values()) {
    ASSERT_TRUE(graph.lineage[id].held() || read.contains(id));
  }
  ASSERT_EQ(graph.lineage.value_count(), graph.values().size());
  ASSERT_EQ(graph.lineage.op_count(), graph.ops().size());
}

void compare(const LineageGraph& graph) {
  ASSERT_NO_THROW(graph.lineage.check());
  expect_no_garbage(graph);
  Demand demand(graph);
  Nanoseconds total{0};
  std::uint64_t sequence = 0;
  for (const PlainOp& op : graph.ops()) {
    const Op& record = graph.lineage[op.id];
    ASSERT_EQ(record.demanding, demand.demanding[op.id]);
    ASSERT_GE(record.sequence, sequence);
    sequence = record.sequence + 1;
    std::vector<ValueId> inputs;
    graph.lineage.for_each_input(op.id, [&](ValueId id) { inputs.push_back(id); });
    ASSERT_EQ(inputs, op.inputs);
    std::set<ValueId> outputs;
    graph.lineage.for_each_output(op.id, [&](ValueId id) { outputs.insert(id); });
    ASSERT_EQ(outputs, op.outputs);
    for (const ValueId output : outputs) {
      ASSERT_EQ(graph.lineage[output].producer, op.id);
    }
    total += op.cost;
  }
  ASSERT_EQ(graph.lineage.total_cost(), total);
  for (const ValueId id : graph.values()) {
    const Value& value = graph.lineage[id];
    ASSERT_EQ(value.demand, demand.of[id]);
    ASSERT_EQ(value.needed(), demand.needed(value, id));
    std::set<OpId> consumers;
    graph.lineage.for_each_consumer(id, [&](OpId op) { consumers.insert(op); });
    std::set<OpId> expected;
    for (const PlainOp& op : graph.ops()) {
      if (std::count(op.inputs.begin(), op.inputs.end(), id) > 0) {
        expected.insert(op.id);
      }
    }
    ASSERT_EQ(consumers, expected);
  }
}

TEST(Lineage, DemandEqualsACountFromScratch) {
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    LineageGraph graph;
    for (int step = 0; step < 120; ++step) {
      std::map<ValueId, std::int32_t> before;
      for (const ValueId id : graph.values()) {
        before[id] = graph.lineage[id].demand;
      }
      graph.useless.clear();
      change(graph, random, 3);
      compare(graph);
      // A resident value that has just lost its last demand must have been reported.
      for (const auto& [id, demand] : before) {
        if (graph.lineage.contains(id) && demand > 0 && graph.lineage[id].resident() &&
            !graph.lineage[id].needed()) {
          EXPECT_EQ(std::count(graph.useless.begin(), graph.useless.end(), id), 1);
        }
      }
      if (testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

TEST(Lineage, EndsEmpty) {
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    LineageGraph graph;
    for (int step = 0; step < 150; ++step) {
      change(graph, random, 3);
    }
    for (const ValueId id : std::set(graph.values())) {
      if (graph.lineage.contains(id)) {
        graph.lineage[id].soft_pins = graph.lineage[id].hard_pins = 0;
        graph.drop(id);
      }
    }
    ASSERT_EQ(graph.lineage.value_count(), 0U);
    ASSERT_EQ(graph.lineage.op_count(), 0U);
    ASSERT_EQ(graph.lineage.total_cost().count(), 0);
    ASSERT_NO_THROW(graph.lineage.check());
  }
}

// x! -> [a] -> (b) -> (c): b is dead. c is held, so b and a are needed until c is dropped.
TEST(Lineage, DemandPropagatesThroughEvictedValues) {
  LineageGraph graph;
  const ValueId x = graph.source();
  const ValueId a = graph.op({x});
  const ValueId b = graph.op({a});
  const ValueId c = graph.op({b});
  graph.drop(a);
  graph.drop(b);
  EXPECT_FALSE(graph.lineage[b].needed());
  graph.evict(b);
  EXPECT_FALSE(graph.lineage[a].needed());  // c is resident, so b is not needed
  graph.evict(c);
  EXPECT_TRUE(graph.lineage[a].needed());
  EXPECT_EQ(graph.lineage[x].demand, 0);  // a is resident
  graph.useless.clear();
  graph.bring_back(c);
  EXPECT_FALSE(graph.lineage[a].needed());
  EXPECT_EQ(graph.useless, std::vector<ValueId>{a});
  graph.drop(c);
  EXPECT_EQ(graph.lineage.op_count(), 0U);
  EXPECT_EQ(graph.lineage.value_count(), 1U);
}

TEST(Lineage, AnOpIsAsDeepAsItsDeepestInput) {
  LineageGraph graph;
  const ValueId x = graph.source();
  const ValueId a = graph.op({x});
  const ValueId b = graph.op({x, graph.op({a})});
  EXPECT_EQ(graph.lineage[graph.lineage[a].producer].depth, 0);
  EXPECT_EQ(graph.lineage[graph.lineage[b].producer].depth, 2);
}

// An op with two results is removed with the second of them.
TEST(Lineage, AnOpLivesAsLongAsOneOfItsResults) {
  LineageGraph graph;
  const ValueId x = graph.source();
  const auto made = graph.op({x}, 2, Nanoseconds{5});
  graph.cut(made[0]);
  EXPECT_TRUE(!graph.lineage[made[0]].recomputable());
  EXPECT_EQ(graph.lineage.total_cost(), Nanoseconds{5});
  EXPECT_FALSE(graph.lineage.cut(x).valid());  // a source has no producer to be cut from
  graph.drop(made[1]);
  EXPECT_EQ(graph.lineage.op_count(), 0U);
  EXPECT_EQ(graph.lineage.total_cost(), Nanoseconds{0});
  EXPECT_FALSE(graph.lineage.has_consumers(x));
}

TEST(Lineage, RefusesToRemoveWhatIsInUse) {
  LineageGraph graph;
  const ValueId x = graph.source();
  const ValueId a = graph.op({x});
  std::vector<ValueId> orphans;
  EXPECT_THROW(graph.lineage.remove_op(graph.lineage[a].producer, orphans), InternalError);
  EXPECT_THROW(graph.lineage.remove_value(x), InternalError);
  EXPECT_THROW(graph.lineage.remove_value(a), InternalError);
}

// One value has thousands of readers; removing a reader must not visit the others.
TEST(Lineage, ReadersAreRemovedInConstantTime) {
  Lineage lineage;
  const ValueId x = lineage.add_value();
  std::vector<ValueId> readers;
  constexpr int kMany = 200'000;
  for (int i = 0; i < kMany; ++i) {
    readers.push_back(lineage.add_value());
    lineage.add_output(lineage.add_op(std::vector{x}), readers.back());
  }
  std::shuffle(readers.begin(), readers.end(), std::mt19937_64(1));
  std::vector<ValueId> orphans;
  for (const ValueId reader : readers) {
    lineage.remove_op(lineage.cut(reader), orphans);
    lineage.remove_value(reader);
  }
  EXPECT_EQ(orphans.size(), readers.size());
  EXPECT_FALSE(lineage.has_consumers(x));
  EXPECT_EQ(lineage.op_count(), 0U);
}

// After 2^32 traversals, a value that no later one has visited must not seem to be visited.
TEST(Lineage, MarksStartAgain) {
  Lineage lineage(0xfffffff0);
  const ValueId visited = lineage.add_value();
  const ValueId other = lineage.add_value();
  lineage[visited].mark = 3;  // of the third traversal
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t mark = lineage.next_mark();
    EXPECT_TRUE(mark != lineage[visited].mark && mark != lineage[other].mark) << mark;
  }
}

// A chain that would overflow the stack of a recursive implementation.
TEST(Lineage, ALongChainNeedsNoRecursion) {
  constexpr int kLength = 200'000;
  Lineage lineage;
  EquivalenceSets sets;
  std::vector<ValueId> chain{lineage.add_value()};
  for (int i = 0; i < kLength; ++i) {
    const OpId op = lineage.add_op(std::vector{chain.back()});
    lineage.set_cost(op, Nanoseconds{1});
    chain.push_back(lineage.add_value());
    lineage.add_output(op, chain.back());
  }
  const ValueId last = chain.back();
  lineage[last].storage = StorageId(0);
  std::vector<ValueId> useless;
  for (std::size_t i = 1; i < chain.size(); ++i) {
    lineage[chain[i]].residency = Residency::kEvicted;
    sets.on_evict(lineage, chain[i]);
    lineage.update_demand(chain[i], useless);
  }
  EXPECT_EQ(lineage[chain.front()].demand, 1);
  EXPECT_EQ(exact_neighborhood_cost(lineage, chain.front()).count(), kLength);
  EXPECT_EQ(ancestor_cost(lineage, last).count(), kLength - 1);
  EXPECT_EQ(sets.cost(lineage, chain.front()).count(), kLength);
  lineage[last].storage = StorageId();
  lineage.update_demand(last, useless);
  EXPECT_EQ(useless, std::vector<ValueId>{chain.front()});
  EXPECT_EQ(lineage[chain[1]].demand, 0);
  for (std::size_t i = chain.size(); i-- > 1;) {
    sets.on_return(lineage, chain[i]);
    lineage[chain[i]].residency = Residency::kLost;
    std::vector<ValueId> orphans;
    lineage.remove_op(lineage.cut(chain[i]), orphans);
    lineage.remove_value(chain[i]);
  }
  EXPECT_EQ(lineage.op_count(), 0U);
  EXPECT_EQ(lineage.value_count(), 1U);
  EXPECT_EQ(sets.cost(lineage, chain.front()).count(), 0);
}

}  // namespace
}  // namespace recoup::detail
