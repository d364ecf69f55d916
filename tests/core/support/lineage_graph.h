// LineageGraph: a lineage that is driven by the engine's rules, with plain lists of the same ops,
// from which every count and cost can be computed by a full scan.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "csrc/lineage/lineage.h"
#include "csrc/lineage/neighborhood.h"

namespace recoup::detail {

struct PlainOp {
  OpId id;
  std::vector<ValueId> inputs;
  std::set<ValueId> outputs;  // the outputs that still have a record
  Nanoseconds cost{0};
};

class LineageGraph {
 public:
  Lineage lineage;
  EquivalenceSets sets;

  ValueId source() {
    const ValueId id = lineage.add_value();
    lineage[id].storage = StorageId(next_storage_++);
    values_.insert(id);
    return id;
  }
  // Adds an op with `fresh` new values. Each value in `over` is overwritten and becomes an old
  // version.
  std::vector<ValueId> op(const std::vector<ValueId>& inputs, std::size_t fresh, Nanoseconds cost,
                          const std::vector<ValueId>& over = {}) {
    const OpId id = lineage.add_op(inputs);
    lineage.set_cost(id, cost);
    PlainOp& plain = ops_.emplace_back(PlainOp{id, inputs, {}, cost});
    std::vector<ValueId> made;
    for (std::size_t i = 0; i < fresh; ++i) {
      made.push_back(source());
      lineage.add_output(id, made.back());
      lineage.add_output(id, ValueId());  // a slot whose result is not recorded
    }
    for (const ValueId before : over) {
      const bool reads = std::count(inputs.begin(), inputs.end(), before) > 0;
      const ValueId after = source();
      std::swap(lineage[after].storage, lineage[before].storage);
      lineage[before].storage = StorageId();
      lineage.add_written(
          id, {.before = reads ? before : ValueId(), .after = after, .nbytes = Bytes(1)});
      made.push_back(after);
    }
    plain.outputs.insert(made.begin(), made.end());
    for (const ValueId before : over) {
      collect(before);
    }
    return made;
  }
  ValueId op(const std::vector<ValueId>& inputs, Nanoseconds cost = Nanoseconds{1}) {
    return op(inputs, 1, cost).front();
  }

  void evict(ValueId id) {
    lineage[id].residency = Residency::kEvicted;
    sets.on_evict(lineage, id);
    lineage.update_demand(id, useless);
    collect(id);
  }
  void bring_back(ValueId id) {
    lineage[id].residency = Residency::kResident;
    sets.on_return(lineage, id);
    lineage.update_demand(id, useless);
  }
  void drop(ValueId id) {
    lineage[id].storage = StorageId();
    collect(id);
  }
  void soft_pin(ValueId id, int by) {
    lineage[id].soft_pins += by;
    collect(id);
  }
  void hard_pin(ValueId id, int by) {
    Value& value = lineage[id];
    value.hard_pins += by;
    value.writing = value.writing && value.hard_pins > 0;
    collect(id);
  }
  // Makes a resident value non-recomputable.
  void cut(ValueId id) {
    const OpId producer = lineage[id].producer;
    const auto plain = std::find_if(ops_.begin(), ops_.end(),
                                    [&](const PlainOp& op) { return op.id == producer; });
    if (plain != ops_.end()) {
      plain->outputs.erase(id);
    }
    if (lineage.cut(id).valid()) {
      std::vector<ValueId> orphans;
      lineage.remove_op(producer, orphans);
      EXPECT_EQ(orphans, plain->inputs);
      ops_.erase(plain);
      for (const ValueId orphan : orphans) {
        collect(orphan);
      }
    } else if (producer.valid()) {
      lineage.update_demand_after_cut(producer, useless);
    }
  }

  [[nodiscard]] const std::set<ValueId>& values() const { return values_; }
  [[nodiscard]] const std::vector<PlainOp>& ops() const { return ops_; }

  [[nodiscard]] std::set<ValueId> parents(ValueId id) const {
    std::set<ValueId> found;
    for (const PlainOp& op : ops_) {
      if (op.outputs.contains(id)) {
        found.insert(op.inputs.begin(), op.inputs.end());
      }
    }
    return found;
  }
  [[nodiscard]] std::set<ValueId> children(ValueId id) const {
    std::set<ValueId> found;
    for (const PlainOp& op : ops_) {
      if (std::count(op.inputs.begin(), op.inputs.end(), id) > 0) {
        found.insert(op.outputs.begin(), op.outputs.end());
      }
    }
    return found;
  }
  [[nodiscard]] Nanoseconds cost_of(ValueId id) const {
    for (const PlainOp& op : ops_) {
      if (op.outputs.contains(id)) {
        return op.cost;
      }
    }
    return Nanoseconds{0};
  }

  std::vector<ValueId> useless;  // values that update_demand() has reported

 private:
  // What the engine does in collect() and remove_record().
  void collect(ValueId first) {
    std::vector<ValueId>& work = collect_work_;
    work.push_back(first);
    if (collecting_) {
      return;
    }
    collecting_ = true;
    while (!work.empty()) {
      const ValueId id = work.back();
      work.pop_back();
      if (!lineage.contains(id)) {
        continue;
      }
      if (lineage[id].evicted()) {
        lineage.update_demand(id, useless);
      }
      if (lineage[id].held() || lineage.has_consumers(id)) {
        continue;
      }
      lineage[id].residency = Residency::kLost;
      sets.on_return(lineage, id);
      lineage.update_demand(id, useless);
      cut(id);
      lineage.remove_value(id);
      values_.erase(id);
    }
    collecting_ = false;
  }

  std::set<ValueId> values_;
  std::vector<PlainOp> ops_;  // oldest first
  std::vector<ValueId> collect_work_;
  bool collecting_ = false;
  std::uint32_t next_storage_ = 0;
};

// Makes one random change that an engine could make. Ops have up to `fresh` results.
inline void change(LineageGraph& graph, std::mt19937_64& random, std::uint64_t fresh) {
  const auto pick = [&](auto&& wanted) {
    std::vector<ValueId> matching;
    for (const ValueId id : graph.values()) {
      if (wanted(graph.lineage[id])) {
        matching.push_back(id);
      }
    }
    return matching.empty() ? ValueId() : matching[random() % matching.size()];
  };
  const auto resident = [](const Value& value) { return value.resident(); };
  const auto evictable = [](const Value& value) {
    return value.resident() && value.recomputable() && value.hard_pins == 0;
  };
  const std::uint64_t dice = random() % 100;
  ValueId id;
  if (dice < 5 || graph.values().size() < 3) {
    graph.source();
  } else if (dice < 40) {
    std::set<ValueId> inputs;
    for (std::uint64_t i = random() % 4; i > 0; --i) {
      if ((id = pick(resident)).valid()) {
        inputs.insert(id);
      }
    }
    std::vector<ValueId> over;
    if (random() % 4 == 0) {  // half of these ops read the value that they overwrite
      id = pick([](const Value& value) { return value.storage.valid(); });
      if (id.valid()) {
        over.push_back(id);
        inputs.erase(id);
        if (graph.lineage[id].resident() && random() % 2 == 0) {
          inputs.insert(id);
        }
      }
    }
    graph.op({inputs.begin(), inputs.end()}, over.empty() ? 1 + random() % fresh : fresh - 1,
             Nanoseconds{static_cast<std::int64_t>(random() % 1000)}, over);
  } else if (dice < 60) {
    if ((id = pick(evictable)).valid()) {
      graph.evict(id);
    }
  } else if (dice < 70) {
    if ((id = pick([](const Value& value) { return value.evicted(); })).valid()) {
      graph.bring_back(id);
    }
  } else if (dice < 82) {
    if ((id = pick([](const Value& value) { return value.storage.valid(); })).valid()) {
      graph.drop(id);
    }
  } else if (dice < 85) {
    if ((id = pick(evictable)).valid()) {
      graph.cut(id);
    }
  } else if (dice < 90) {
    graph.soft_pin(pick([](const Value&) { return true; }), 1);
  } else if (dice < 95) {
    id = pick([](const Value&) { return true; });
    graph.lineage[id].writing = graph.lineage[id].resident() && random() % 2 == 0;
    graph.hard_pin(id, 1);
  } else if ((id = pick([](const Value& value) { return value.soft_pins > 0; })).valid()) {
    graph.soft_pin(id, -1);
  } else if ((id = pick([](const Value& value) { return value.hard_pins > 0; })).valid()) {
    graph.hard_pin(id, -1);
  }
}

}  // namespace recoup::detail
