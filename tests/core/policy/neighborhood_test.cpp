#include "csrc/lineage/neighborhood.h"

#include <gtest/gtest.h>

#include "tests/core/support/lineage_graph.h"
#include "tests/core/support/seeds.h"

namespace recoup::detail {
namespace {

// All values that are reachable through evicted values in one direction, without the start.
template <class Neighbours>
std::set<ValueId> reachable(const LineageGraph& graph, ValueId start, Neighbours&& neighbours) {
  std::set<ValueId> found;
  std::vector<ValueId> work{start};
  while (!work.empty()) {
    const ValueId id = work.back();
    work.pop_back();
    for (const ValueId next : neighbours(id)) {
      if (graph.lineage[next].evicted() && found.insert(next).second) {
        work.push_back(next);
      }
    }
  }
  return found;
}

std::set<ValueId> ancestors(const LineageGraph& graph, ValueId id) {
  return reachable(graph, id, [&](ValueId each) { return graph.parents(each); });
}

std::set<ValueId> descendants(const LineageGraph& graph, ValueId id) {
  return reachable(graph, id, [&](ValueId each) { return graph.children(each); });
}

Nanoseconds total(const LineageGraph& graph, const std::set<ValueId>& values) {
  Nanoseconds sum{0};
  for (const ValueId id : values) {
    sum += graph.cost_of(id);
  }
  return sum;
}

// The sets by relabelling: joined sets stay joined, and a restored value subtracts its cost.
class PlainSets {
 public:
  // Updates the sets for values that were evicted, restored or removed since the last call. At most
  // one value may have been evicted.
  void follow(const LineageGraph& graph) {
    for (auto each = members_.begin(); each != members_.end();) {
      if (graph.values().contains(each->first) && graph.lineage[each->first].evicted()) {
        ++each;
        continue;
      }
      costs_[each->second.set] -= each->second.cost;
      each = members_.erase(each);
    }
    for (const ValueId id : graph.values()) {
      if (graph.lineage[id].evicted() && !members_.contains(id)) {
        join(graph, id);
      }
    }
  }
  [[nodiscard]] Nanoseconds cost(const LineageGraph& graph, ValueId id) const {
    Nanoseconds sum{0};
    for (const int set : around(graph, id)) {
      sum += costs_.at(set);
    }
    return sum;
  }

 private:
  struct Member {
    int set;
    Nanoseconds cost;
  };
  [[nodiscard]] std::set<int> around(const LineageGraph& graph, ValueId id) const {
    std::set<int> sets;
    for (const auto& neighbours : {graph.parents(id), graph.children(id)}) {
      for (const ValueId neighbour : neighbours) {
        if (const auto member = members_.find(neighbour); member != members_.end()) {
          sets.insert(member->second.set);
        }
      }
    }
    return sets;
  }
  void join(const LineageGraph& graph, ValueId id) {
    const int joined = next_++;
    costs_[joined] = graph.cost_of(id);
    for (const int set : around(graph, id)) {
      costs_[joined] += costs_[set];
      costs_.erase(set);
      for (auto& [other, member] : members_) {
        member.set = member.set == set ? joined : member.set;
      }
    }
    members_[id] = {.set = joined, .cost = graph.cost_of(id)};
  }

  std::map<ValueId, Member> members_;
  std::map<int, Nanoseconds> costs_;
  int next_ = 0;
};

// With one result per op, a value corresponds to an op, so both ways of counting agree.
TEST(Neighborhood, CostsEqualASearchOfTheWholeGraph) {
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    LineageGraph graph;
    for (int step = 0; step < 100; ++step) {
      change(graph, random, 1);
    }
    for (const ValueId id : graph.values()) {
      const Nanoseconds up = total(graph, ancestors(graph, id));
      ASSERT_EQ(ancestor_cost(graph.lineage, id), up);
      ASSERT_EQ(exact_neighborhood_cost(graph.lineage, id),
                up + total(graph, descendants(graph, id)));
    }
  }
}

TEST(Neighborhood, TheCostOfASetIsTheSumOfItsMembers) {
  int phantoms = 0;
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    LineageGraph graph;
    PlainSets plain;
    for (int step = 0; step < 100; ++step) {
      change(graph, random, 3);
      plain.follow(graph);
      for (const ValueId id : graph.values()) {
        if (!graph.lineage[id].resident()) {
          continue;
        }
        const Nanoseconds cost = graph.sets.cost(graph.lineage, id);
        ASSERT_EQ(cost, plain.cost(graph, id)) << "step " << step;
        const Nanoseconds exact = exact_neighborhood_cost(graph.lineage, id);
        ASSERT_GE(cost, exact) << "step " << step;
        phantoms += cost > exact ? 1 : 0;
      }
    }
  }
  EXPECT_GT(phantoms, 0);
}

// Costs are queried at random times, so that bounds of all ages are tested.
TEST(Neighborhood, ASetCostsAtLeastItsBound) {
  int exact = 0;
  int old = 0;
  int held = 0;
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    LineageGraph graph;
    graph.sets.start_watching();
    PlainSets plain;
    for (int step = 0; step < 100; ++step) {
      change(graph, random, 3);
      plain.follow(graph);
      for (const ValueId id : graph.values()) {
        if (!graph.lineage[id].resident() || !graph.lineage[id].recomputable()) {
          continue;
        }
        const Nanoseconds cost = plain.cost(graph, id);
        const Nanoseconds bound = graph.sets.cost_at_least(graph.lineage[id]);
        ASSERT_GE(bound, Nanoseconds{0});
        ASSERT_LE(bound, cost) << "step " << step;
        const Nanoseconds watched = graph.sets.watches().at_least(id);
        ASSERT_GE(watched, Nanoseconds{0});
        ASSERT_LE(watched, cost) << "step " << step;
        held += watched > bound ? 1 : 0;
        exact += bound > Nanoseconds{0} && bound == cost ? 1 : 0;
        old += bound > Nanoseconds{0} && bound < cost ? 1 : 0;
        if (random() % 8 == 0) {
          ASSERT_EQ(graph.sets.cost(graph.lineage, id), cost);
          ASSERT_EQ(graph.sets.cost_at_least(graph.lineage[id]), cost);
        }
      }
    }
  }
  EXPECT_GT(exact, 0);
  EXPECT_GT(old, 0);
  EXPECT_GT(held, 0) << "watches keep bounds for longer";
}

// x! -> (1) -> (2) -> (3) -> [4] -> (5) -> (6) -> (7): all values around 4 are evicted, in every
// order.
TEST(Neighborhood, SetsAreExactForAChain) {
  std::vector<int> order{0, 1, 2, 3, 4, 5};
  do {
    LineageGraph graph;
    std::vector<ValueId> chain{graph.source()};
    for (int i = 0; i < 7; ++i) {
      chain.push_back(graph.op({chain.back()}, Nanoseconds{1 << i}));
    }
    std::set<std::size_t> evicted;
    const auto cost = [](std::size_t at) { return std::int64_t{1} << (at - 1); };
    for (const int which : order) {
      const std::size_t at = static_cast<std::size_t>(which < 3 ? which + 1 : which + 2);
      graph.evict(chain[at]);
      evicted.insert(at);
      std::int64_t expected = 0;
      for (std::size_t up = 3; evicted.contains(up); --up) {
        expected += cost(up);
      }
      for (std::size_t down = 5; evicted.contains(down); ++down) {
        expected += cost(down);
      }
      ASSERT_EQ(exact_neighborhood_cost(graph.lineage, chain[4]).count(), expected);
      ASSERT_EQ(graph.sets.cost(graph.lineage, chain[4]).count(), expected);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

// x! -> (a) -> [b] -> (c) -> [d]: b was restored. a and c still count as connected.
TEST(Neighborhood, ARestoredValueLeavesAPhantomConnection) {
  LineageGraph graph;
  const ValueId x = graph.source();
  const ValueId a = graph.op({x}, Nanoseconds{1});
  const ValueId b = graph.op({a}, Nanoseconds{10});
  const ValueId c = graph.op({b}, Nanoseconds{100});
  const ValueId d = graph.op({c}, Nanoseconds{1000});
  for (const ValueId id : {a, b, c}) {
    graph.evict(id);
  }
  graph.bring_back(b);
  EXPECT_EQ(exact_neighborhood_cost(graph.lineage, d), Nanoseconds{100});
  EXPECT_EQ(graph.sets.cost(graph.lineage, d), Nanoseconds{101});
  EXPECT_EQ(graph.sets.cost(graph.lineage, b), Nanoseconds{101});  // one set, counted once
  graph.bring_back(a);
  graph.bring_back(c);
  for (const ValueId id : {x, a, b, c, d}) {
    EXPECT_EQ(graph.sets.cost(graph.lineage, id), Nanoseconds{0});
  }
  graph.evict(c);  // a new set: the connections ended with the last member
  EXPECT_EQ(graph.sets.cost(graph.lineage, d), Nanoseconds{100});
}

// x! => (a, b) -> [c]: one op made a and b, and a replay for c runs it once.
TEST(Neighborhood, AnOpWithSeveralResultsCountsOnce) {
  LineageGraph graph;
  const ValueId x = graph.source();
  const auto made = graph.op({x}, 2, Nanoseconds{100});
  const ValueId c = graph.op({made[0], made[1]});
  graph.evict(made[0]);
  graph.evict(made[1]);
  EXPECT_EQ(ancestor_cost(graph.lineage, c), Nanoseconds{100});
  EXPECT_EQ(exact_neighborhood_cost(graph.lineage, c), Nanoseconds{100});
  EXPECT_EQ(exact_neighborhood_cost(graph.lineage, x), Nanoseconds{100});
}

// Steps of a training loop: all evicted values are restored, and the records of sets are reused.
TEST(Neighborhood, SetRecordsAreReused) {
  LineageGraph graph;
  std::vector<ValueId> chain{graph.source()};
  for (int i = 0; i < 200; ++i) {
    chain.push_back(graph.op({chain.back()}));
  }
  std::mt19937_64 random(1);
  std::size_t memory = 0;
  for (int round = 0; round < 50; ++round) {
    for (const bool evicts : {true, false}) {
      std::shuffle(chain.begin() + 1, chain.end(), random);
      for (std::size_t i = 1; i < chain.size(); ++i) {
        evicts ? graph.evict(chain[i]) : graph.bring_back(chain[i]);
      }
    }
    EXPECT_EQ(graph.sets.cost(graph.lineage, chain[0]), Nanoseconds{0});
    memory = round == 0 ? graph.sets.memory() : memory;
    ASSERT_EQ(graph.sets.memory(), memory);
  }
}

}  // namespace
}  // namespace recoup::detail
