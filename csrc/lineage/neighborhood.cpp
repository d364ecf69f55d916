#include "csrc/lineage/neighborhood.h"

#include <algorithm>

#include "csrc/lineage/neighbors.h"

namespace recoup::detail {
namespace {

Nanoseconds producer_cost(const Lineage& lineage, const Value& value) {
  return value.producer.valid() ? lineage[value.producer].cost : Nanoseconds{0};
}

// An op with several results counts once per traversal, because it runs once for all of them.
Nanoseconds count_once(const Lineage& lineage, OpId op, std::uint32_t mark) {
  if (!op.valid() || lineage[op].mark == mark) {
    return Nanoseconds{0};
  }
  lineage[op].mark = mark;
  return lineage[op].cost;
}

enum class Direction : std::uint8_t { kUp, kDown };

// Calls function(value) for each evicted value that is reachable in one direction through evicted
// values, until more() is false.
template <class Function, class More>
void reach_while(const Lineage& lineage, ValueId start, Direction direction, std::uint32_t mark,
                 Function&& function, More&& more) {
  thread_local std::vector<ValueId> stack;
  stack.clear();
  lineage[start].mark = mark;
  const auto visit = [&](ValueId id) {
    const Value& value = lineage[id];
    if (value.evicted() && value.mark != mark) {
      value.mark = mark;
      function(value);
      stack.push_back(id);
    }
  };
  stack.push_back(start);
  while (!stack.empty() && more()) {
    const ValueId id = stack.back();
    stack.pop_back();
    if (direction == Direction::kUp) {
      for_each_parent(lineage, id, visit);
    } else {
      for_each_child(lineage, id, visit);
    }
  }
}

template <class Function>
void reach(const Lineage& lineage, ValueId start, Direction direction, std::uint32_t mark,
           Function&& function) {
  reach_while(lineage, start, direction, mark, function, [] { return true; });
}

Nanoseconds reached_cost(const Lineage& lineage, ValueId start, Direction direction,
                         Nanoseconds limit) {
  const std::uint32_t mark = lineage.next_mark();
  Nanoseconds sum{0};
  reach_while(
      lineage, start, direction, mark,
      [&](const Value& value) { sum += count_once(lineage, value.producer, mark); },
      [&] { return sum <= limit; });
  return sum;
}

}  // namespace

Nanoseconds exact_neighborhood_cost(const Lineage& lineage, ValueId value) {
  return reached_cost(lineage, value, Direction::kUp, Nanoseconds::max()) +
         reached_cost(lineage, value, Direction::kDown, Nanoseconds::max());
}

Nanoseconds ancestor_cost(const Lineage& lineage, ValueId value, Nanoseconds limit) {
  return reached_cost(lineage, value, Direction::kUp, limit);
}

Nanoseconds replay_cost(const Lineage& lineage, std::span<const ValueId> values) {
  const std::uint32_t mark = lineage.next_mark();
  Nanoseconds sum{0};
  const auto add = [&](const Value& value) { sum += count_once(lineage, value.producer, mark); };
  for (ValueId id : values) {
    const Value& value = lineage[id];
    if (value.evicted() && value.mark != mark) {
      add(value);
      reach(lineage, id, Direction::kUp, mark, add);
    }
  }
  return sum;
}

Nanoseconds soonest_use(const Lineage& lineage, ValueId value,
                        const std::function<Nanoseconds(const Value&)>& until_use) {
  Nanoseconds soonest = until_use(lineage[value]);
  reach(lineage, value, Direction::kDown, lineage.next_mark(),
        [&](const Value& descendant) { soonest = std::min(soonest, until_use(descendant)); });
  return soonest;
}

SetId EquivalenceSets::find(SetId id) {
  SetId root = id;
  while (sets_[root].parent.valid()) {
    root = sets_[root].parent;
  }
  while (id != root) {  // path compression, without recursion: chains reach thousands
    const SetId parent = sets_[id].parent;
    if (parent != root) {
      sets_[id].parent = root;
      ++sets_[root].references;
      release(parent);
      if (!sets_.contains(parent)) {
        break;
      }
    }
    id = parent;
  }
  return root;
}

void EquivalenceSets::release(SetId id) {
  while (id.valid() && --sets_[id].references == 0) {
    const SetId parent = sets_[id].parent;
    sets_.remove(id);
    if (watching_) {
      watches_.on_remove(id);
    }
    id = parent;
  }
}

void EquivalenceSets::join(SetId a, SetId b) {
  a = find(a);
  b = find(b);
  if (a == b) {
    return;
  }
  sets_[b].parent = a;
  ++sets_[a].references;
  sets_[a].cost += sets_[b].cost;
  if (watching_) {
    watches_.on_join(a, b);
  }
}

void EquivalenceSets::on_evict(Lineage& lineage, ValueId id) {
  Value& value = lineage[id];
  value.set = sets_.add();
  sets_[value.set] = {
      .parent = {}, .cost = producer_cost(lineage, value), .references = 1, .mark = 0};
  const auto join_evicted = [&](ValueId neighbor) {
    if (neighbor != id && lineage[neighbor].set.valid()) {
      join(value.set, lineage[neighbor].set);
    }
  };
  for_each_parent(lineage, id, join_evicted);
  for_each_child(lineage, id, join_evicted);
}

void EquivalenceSets::on_return(Lineage& lineage, ValueId id) {
  Value& value = lineage[id];
  if (watching_) {
    watches_.lose(id);  // its id may be used for another value
  }
  if (value.set.valid()) {
    const Nanoseconds cost = producer_cost(lineage, value);
    const SetId root = find(value.set);
    sets_[root].cost -= cost;
    if (watching_) {
      watches_.on_return(root, cost);
    }
    returned_ += cost;
    release(value.set);
    value.set = SetId();
    // The neighbor may be next to that set only through this value.
    const auto forget = [&](ValueId neighbor) {
      lineage[neighbor].set_cost_bound = {};
      if (watching_) {
        watches_.lose(neighbor);
      }
    };
    for_each_parent(lineage, id, forget);
    for_each_child(lineage, id, forget);
  }
}

Nanoseconds EquivalenceSets::cost(const Lineage& lineage, ValueId id) {
  ++mark_;
  adjacent_.clear();
  Nanoseconds sum{0};
  const auto add = [&](ValueId neighbor) {
    if (const SetId set = lineage[neighbor].set; set.valid()) {
      const SetId component = find(set);
      Node& root = sets_[component];
      if (root.mark != mark_) {
        root.mark = mark_;
        sum += root.cost;
        if (watching_ && root.cost > Nanoseconds(0)) {
          adjacent_.push_back(component);
        }
      }
    }
  };
  for_each_parent(lineage, id, add);
  for_each_child(lineage, id, add);
  lineage[id].set_cost_bound = sum + returned_;
  if (watching_) {
    watches_.watch(id, adjacent_, sum);
  }
  return sum;
}

}  // namespace recoup::detail
