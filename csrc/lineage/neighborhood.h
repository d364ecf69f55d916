// What it would cost to get the evicted surroundings of a value back (DTR, section 4.1 and C.2).
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "csrc/base/slab.h"
#include "csrc/lineage/lineage.h"
#include "csrc/lineage/watches.h"
#include "recoup/types.h"

namespace recoup::detail {

// Sum over e*(v): each op that made an evicted ancestor or descendant of `value`, reached through
// evicted values only, counted once. O(size of the neighbourhood).
Nanoseconds exact_neighborhood_cost(const Lineage& lineage, ValueId value);

// The same over evicted ancestors only: what a replay of `value` would run besides its own op.
Nanoseconds ancestor_cost(const Lineage& lineage, ValueId value);

// What the ops cost that make `values` resident, if each of them has to run just once: those that
// made an evicted one of them, or an evicted ancestor.
Nanoseconds replay_cost(const Lineage& lineage, std::span<const ValueId> values);

// The least of `until_use` over the value and its evicted descendants, reached through evicted
// values only: getting those back asks for it too.
Nanoseconds soonest_use(const Lineage& lineage, ValueId value,
                        const std::function<Nanoseconds(const Value&)>& until_use);

// e~*: evicted values in undirected components, kept by union-find with a running cost a component.
// Rematerializing subtracts a value's cost and leaves the connections it made (the paper's phantom
// dependencies), so a component is never split.
class EquivalenceSets {
 public:
  // `value` was evicted: a new set, joined with those of its evicted neighbours.
  void on_evict(Lineage& lineage, ValueId value);
  // `value` got its bytes back, or its record is about to go.
  void on_return(Lineage& lineage, ValueId value);
  // Sum over the distinct sets next to a resident value.
  Nanoseconds cost(const Lineage& lineage, ValueId value);
  // No more than cost() of a value with a producer, in O(1). While no neighbour comes back, the sum
  // falls only by what returns elsewhere: it is at least the last one less all that has since.
  [[nodiscard]] Nanoseconds cost_at_least(const Value& value) const {
    return std::max(value.set_cost_bound - returned_, Nanoseconds{0});
  }
  // From now on watches() says whose cost() has fallen since it was asked for.
  void start_watching() { watching_ = true; }
  [[nodiscard]] ComponentWatches& watches() { return watches_; }
  [[nodiscard]] const ComponentWatches& watches() const { return watches_; }
  [[nodiscard]] std::size_t memory() const { return sets_.memory(); }

 private:
  // A node of the union-find forest; lives while a value or a child refers to it.
  struct Node {
    SetId parent;
    Nanoseconds cost{0};  // of the whole component, at a root
    std::int32_t references = 0;
    std::uint32_t mark = 0;
  };
  SetId find(SetId id);
  void join(SetId a, SetId b);
  void release(SetId id);

  Slab<Node, SetId> sets_;
  std::uint32_t mark_ = 0;
  Nanoseconds returned_{0};  // all costs that were ever subtracted
  bool watching_ = false;
  ComponentWatches watches_;
  std::vector<SetId> beside_;  // of the running cost()
};

}  // namespace recoup::detail
