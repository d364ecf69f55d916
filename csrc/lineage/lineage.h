// The lineage graph: which op made each value, and from what.
//
//        reads                     makes
//   v0 ---------> op (cost, payload) ----> v1 (storage s)      v0 --edge--> op --output--> v1
//
// An op's record lives while one of its outputs has a record. A value's record lives while the
// value is the current content of a live storage, is pinned, or is read by a recorded op. So the
// graph is exactly what replays can still need, and it is let go iteratively, however long it is.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/slab.h"
#include "recoup/types.h"

namespace recoup::detail {

using EdgeId = Id<struct EdgeTag>;
using SetId = Id<struct SetTag>;

enum class Residency : std::uint8_t {
  kResident,  // has bytes: in `block`, or outside the pool behind `external`
  kEvicted,   // has none; the producer can be replayed
  kSpilled,   // has none; the spill tier keeps them in `slot`
  kLost,      // has none and cannot be replayed; its record is about to go
};

struct Value {
  Bytes size;         // of its block, alignment included
  Bytes nbytes;       // of its storage, exact
  StorageId storage;  // the live storage whose content this is; none: dead or superseded
  OpId producer;      // none: a non-recomputable value
  BlockId block;      // valid iff resident and not external
  EdgeId consumers;   // head of the list of ops that read it
  SetId set;          // its component among evicted values, while evicted
  // How often its bytes came back.
  std::uint32_t recomputes = 0;
  // See EquivalenceSets::cost_at_least.
  mutable Nanoseconds set_cost_bound{0};
  Tick last_access = 0;
  std::int32_t hard_pins = 0;
  std::int32_t soft_pins = 0;
  std::int32_t fixed = 0;   // kernels and pins that know its address: it may not move
  std::int32_t demand = 0;  // ops that read it and have an output that is evicted and needed
  std::uint32_t candidate_index = kNotCandidate;
  mutable std::uint32_t mark = 0;  // of the last traversal that visited it
  Residency residency = Residency::kResident;
  bool escaped = false;        // somebody holds its address
  bool among_outside = false;  // external, and of the budget already: Options::outside
  bool kept = false;           // a schedule wants its bytes, whether somebody needs them or not
  bool was_read = false;       // by an op of the program that did not write it
  bool from_nothing = false;   // Note [State]: its storage began with an op that read nothing
  bool changed = false;        // the same: its storage was read, and then changed, before
  bool frozen = false;         // a non-recomputable value that in another budget need not be one
  bool dead_source = false;  // a non-recomputable value in the pool that no storage holds any more
  bool spillable = false;    // the spill tier takes it
  bool writing = false;  // a kernel that pins it writes over it: what it holds is about to be gone
  bool copying = false;  // Note [Copies beside ops]: one is under way
  BlockId slot;          // of the spill tier: of a spilled value, or of a copy of a resident one
  void* external =
      nullptr;  // made outside the pool: the device's record of it; charged, not evicted

  static constexpr std::uint32_t kNotCandidate = 0xffffffff;
  [[nodiscard]] bool resident() const { return residency == Residency::kResident; }
  [[nodiscard]] bool evicted() const { return residency == Residency::kEvicted; }
  [[nodiscard]] bool spilled() const { return residency == Residency::kSpilled; }
  // It has bytes, and the spill tier has the same.
  [[nodiscard]] bool clean() const { return resident() && slot.valid() && !copying; }
  // Nothing has to be replayed for what it holds.
  [[nodiscard]] bool has_content() const { return resident() || spilled(); }
  [[nodiscard]] bool recomputable() const { return producer.valid(); }
  // Its bytes may be taken: a replay makes them again, or the spill tier keeps them.
  [[nodiscard]] bool evictable() const {
    return (spillable || recomputable()) && hard_pins == 0 && resident() && block.valid() &&
           !escaped;
  }
  // Its block may move, as far as the metadata know: the device finds out. To ask it for every
  // block of every plan took as long as the ops of a net of many small ones.
  [[nodiscard]] bool movable() const { return fixed == 0 && !escaped; }
  // The user, a running op or a waiting replay holds it.
  [[nodiscard]] bool held() const { return storage.valid() || hard_pins > 0 || soft_pins > 0; }
  // Somebody will ask for it: its holder, or an evicted value that is needed. The pin of the kernel
  // that has just written over it asks for nothing.
  [[nodiscard]] bool needed() const {
    return storage.valid() || soft_pins > 0 || (hard_pins > 0 && !writing) || demand > 0;
  }
};

// One written storage of an op: its content before and after.
struct WrittenValue {
  ValueId before;  // none: the op overwrites all of it and reads nothing of it
  ValueId after;   // none: its record is gone
  Bytes nbytes;    // of the storage
};

struct Op {
  void* payload = nullptr;  // the device's; released with the record
  Nanoseconds cost{0};
  Bytes workspace{0};  // most bytes that its kernel held beside its outputs
  Bytes forgotten{0};  // of outputs that have no record: a replay makes them, too
  std::uint64_t sequence = 0;
  std::int32_t depth = 0;          // ops on the longest path from a non-recomputable value
  std::int32_t live_outputs = 0;   // outputs that still have a record
  bool demanding = false;          // has an output that is evicted and needed
  mutable std::uint32_t mark = 0;  // of the last traversal that counted it
  boost::container::small_vector<EdgeId, 3> inputs;    // distinct values that it reads
  boost::container::small_vector<ValueId, 1> outputs;  // fresh storages; none where the record went
  boost::container::small_vector<WrittenValue, 1> written;
};

// One "op reads value". Edges of a value form a doubly linked list, so that removing one is O(1)
// even for a parameter that thousands of ops read.
struct Edge {
  ValueId value;
  OpId op;
  EdgeId next;
  EdgeId previous;
};

class Lineage {
 public:
  ValueId add_value() { return values_.add(); }
  Slab<Value, ValueId>::Added emplace_value() { return values_.emplace(); }
  // Adds an op that reads `inputs`; its outputs are attached with add_output and add_written.
  OpId add_op(std::span<const ValueId> inputs);
  // Fresh outputs in the order of their slots; an invalid value leaves a slot empty.
  void add_output(OpId op, ValueId value);
  void add_written(OpId op, WrittenValue written);

  [[nodiscard]] Value& operator[](ValueId id) { return values_[id]; }
  [[nodiscard]] const Value& operator[](ValueId id) const { return values_[id]; }
  [[nodiscard]] Op& operator[](OpId id) { return ops_[id]; }
  [[nodiscard]] const Op& operator[](OpId id) const { return ops_[id]; }
  [[nodiscard]] const Edge& operator[](EdgeId id) const { return edges_[id]; }
  [[nodiscard]] bool contains(ValueId id) const { return values_.contains(id); }

  template <class Function>
  void for_each_input(OpId op, Function&& function) const {
    for (EdgeId edge : ops_[op].inputs) {
      function(edges_[edge].value);
    }
  }
  // All values that an op makes, fresh and written; records that are gone are left out.
  template <class Function>
  void for_each_output(OpId op, Function&& function) const {
    for (ValueId value : ops_[op].outputs) {
      if (value.valid()) {
        function(value);
      }
    }
    for (const WrittenValue& written : ops_[op].written) {
      if (written.after.valid()) {
        function(written.after);
      }
    }
  }
  // Ops that read a value. The function must not change the list.
  template <class Function>
  void for_each_consumer(ValueId value, Function&& function) const {
    for (EdgeId edge = values_[value].consumers; edge.valid(); edge = edges_[edge].next) {
      function(edges_[edge].op);
    }
  }
  [[nodiscard]] bool has_consumers(ValueId value) const { return values_[value].consumers.valid(); }

  // Detaches a value from its producer: it is a non-recomputable value from now on. If the producer
  // has no output left, returns it, to be given to remove_op.
  [[nodiscard]] OpId cut(ValueId value);
  // Removes an op without outputs; its inputs are appended to `orphans` (they lost a consumer).
  void remove_op(OpId op, std::vector<ValueId>& orphans) {
    remove_op(op, [&orphans](ValueId orphan, const Value&) { orphans.push_back(orphan); });
  }
  // The same; calls on_orphan(id, value) for each.
  template <class Function>
  void remove_op(OpId op, Function&& on_orphan);
  // Removes the record of a value that has no consumer and no producer.
  void remove_value(ValueId value);

  // Brings `demanding` of the ops around a value up to date after its residency or its users
  // changed, and what follows from that. Dead resident values whose demand went to 0 are appended
  // to `useless`.
  void update_demand(ValueId changed, std::vector<ValueId>& useless);
  void update_demand(OpId changed, std::vector<ValueId>& useless);

  [[nodiscard]] Nanoseconds total_cost() const { return total_cost_; }
  void set_cost(OpId op, Nanoseconds cost);
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }
  [[nodiscard]] std::size_t op_count() const { return ops_.size(); }
  [[nodiscard]] std::size_t memory() const {
    return values_.memory() + ops_.memory() + edges_.memory();
  }
  // A fresh traversal mark: values whose mark differs have not been visited by it.
  std::uint32_t next_mark() const { return ++mark_; }

  template <class Function>
  void for_each_value(Function&& function) const {
    values_.for_each(function);
  }
  template <class Function>
  void for_each_op(Function&& function) const {
    ops_.for_each(function);
  }
  // Recounts edges, demand and costs; throws InternalError on the first difference.
  void check() const;

 private:
  void unlink(EdgeId edge, Value& value);
  [[nodiscard]] bool should_demand(const Op& op) const;

  Slab<Value, ValueId> values_;
  Slab<Op, OpId> ops_;
  Slab<Edge, EdgeId> edges_;
  std::vector<OpId> demand_work_;  // worklist of update_demand, kept for its capacity
  Nanoseconds total_cost_{0};
  std::uint64_t next_sequence_ = 0;
  mutable std::uint32_t mark_ = 0;
};

template <class Function>
void Lineage::remove_op(OpId id, Function&& on_orphan) {
  const Op& op = ops_[id];
  RECOUP_CHECK(op.live_outputs == 0);
  for (EdgeId edge : op.inputs) {
    const ValueId input = edges_[edge].value;
    Value& value = values_[input];
    if (op.demanding) {
      --value.demand;
    }
    unlink(edge, value);
    on_orphan(input, value);
  }
  total_cost_ -= op.cost;
  ops_.remove(id);
}

inline void Lineage::unlink(EdgeId id, Value& value) {
  const Edge& edge = edges_[id];
  if (edge.previous.valid()) {
    edges_[edge.previous].next = edge.next;
  } else {
    value.consumers = edge.next;
  }
  if (edge.next.valid()) {
    edges_[edge.next].previous = edge.previous;
  }
  edges_.remove(id);
}

}  // namespace recoup::detail
