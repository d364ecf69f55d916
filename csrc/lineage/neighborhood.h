// The cost of restoring the evicted neighborhood of a value (DTR, section 4.1 and C.2).
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

// Sum over e*(v): the ops that made an evicted ancestor or descendant of `value`, reached through
// evicted values only. Each op counts once. O(size of the neighborhood).
Nanoseconds exact_neighborhood_cost(const Lineage& lineage, ValueId value);

// Sum over evicted ancestors only: what a replay of `value` runs in addition to its own op. If it
// exceeds `limit`, a part of it that exceeds `limit`, too.
Nanoseconds ancestor_cost(const Lineage& lineage, ValueId value,
                          Nanoseconds limit = Nanoseconds::max());

// The cost of making `values` resident, if each op runs just once: the ops that made the evicted
// ones among them, or an evicted ancestor.
Nanoseconds replay_cost(const Lineage& lineage, std::span<const ValueId> values);

// The minimum of `until_use` over the value and its evicted descendants, reached through evicted
// values only: restoring those uses the value, too.
Nanoseconds soonest_use(const Lineage& lineage, ValueId value,
                        const std::function<Nanoseconds(const Value&)>& until_use);

// e~*: undirected components of evicted values, kept by union-find with a running cost per
// component. Rematerializing a value subtracts its cost and keeps the connections that it made (the
// paper's phantom dependencies), so a component is never split.
class EquivalenceSets {
 public:
  // `value` was evicted: makes a new set and joins it with those of its evicted neighbors.
  void on_evict(Lineage& lineage, ValueId value);
  // `value` was restored, or its record is about to be removed.
  void on_return(Lineage& lineage, ValueId value);
  // Sum over the distinct sets next to a resident value.
  Nanoseconds cost(const Lineage& lineage, ValueId value);
  // A lower bound of cost() for a value with a producer, in O(1). Unless a neighbor is restored,
  // the sum falls only by the costs of values that are restored elsewhere. So it is at least the
  // last sum minus all costs that were subtracted since.
  [[nodiscard]] Nanoseconds cost_at_least(const Value& value) const {
    return std::max(value.set_cost_bound - returned_, Nanoseconds{0});
  }
  // From now on watches() reports the values whose cost() has fallen since it was computed.
  void start_watching() { watching_ = true; }
  [[nodiscard]] ComponentWatches& watches() { return watches_; }
  [[nodiscard]] const ComponentWatches& watches() const { return watches_; }
  [[nodiscard]] std::size_t memory() const { return sets_.memory(); }

 private:
  // A node of the union-find forest. It lives while a value or a child refers to it.
  struct Node {
    SetId parent;
    Nanoseconds cost{0};  // cost of the whole component, at a root
    std::int32_t references = 0;
    std::uint32_t mark = 0;
  };
  SetId find(SetId id);
  void join(SetId a, SetId b);
  void release(SetId id);

  Slab<Node, SetId> sets_;
  std::uint32_t mark_ = 0;
  Nanoseconds returned_{0};  // sum of all costs that were ever subtracted
  bool watching_ = false;
  ComponentWatches watches_;
  std::vector<SetId> adjacent_;  // components next to the value of the running cost()
};

}  // namespace recoup::detail
