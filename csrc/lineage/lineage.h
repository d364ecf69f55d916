// The lineage graph: which op made each value, and from what.
//
//        reads                     makes
//   v0 ---------> op (cost, payload) ----> v1 (storage s)      v0 --edge--> op --output--> v1
//
// An op's record lives while one of its outputs has a record. A value's record lives while the
// value is the current content of a live storage, is pinned, or is read by a recorded op. So the
// graph is exactly what replays can still need. It is freed iteratively, whatever its length.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/slab.h"
#include "csrc/lineage/no_replay.h"
#include "recoup/types.h"

namespace recoup::detail {

using EdgeId = Id<struct EdgeTag>;
using SetId = Id<struct SetTag>;

enum class Residency : std::uint8_t {
  kResident,  // has bytes: in `block`, or outside the pool, see `external`
  kEvicted,   // has no bytes; the producer can be replayed
  kSpilled,   // has no bytes; the spill tier keeps them in `slot`
  kLost,      // has no bytes and cannot be replayed; its record is about to be removed
};

// What the engine notes on a value. The lineage does not write it, and reads only `stays`.
struct EngineFlags {
  bool among_outside = false;     // external, and part of Options::outside or in overflow memory
  bool kept : 1 = false;          // a schedule wants its bytes, even if it is not needed
  bool was_read : 1 = false;      // by an op of the program that did not write it
  bool from_nothing : 1 = false;  // Note [State]: its storage began with an op that read nothing
  bool changed : 1 = false;       // Note [State]: its storage was changed before, after it was read
  bool frozen : 1 = false;        // non-recomputable, but would not be in every budget
  bool dead_source : 1 = false;   // non-recomputable, in the pool, and without a storage
  bool stays : 1 = false;         // Note [Rules]: it must not be evicted
  bool off_tier : 1 = false;      // Note [Rules]: it must not be spilled
  NoReplay why = NoReplay::kNone;  // of a non-recomputable value
};

struct Value {
  Bytes size;         // size of its block, alignment included
  Bytes nbytes;       // exact size of its storage
  StorageId storage;  // the live storage whose content this is; invalid: dead or superseded
  OpId producer;      // invalid: non-recomputable
  BlockId block;      // valid iff resident and not external
  EdgeId consumers;   // head of the list of ops that read it
  SetId set;          // its component of evicted values, while it is evicted
  // Number of times that its bytes were restored.
  std::uint32_t recomputes = 0;
  // See EquivalenceSets::cost_at_least.
  mutable Nanoseconds set_cost_bound{0};
  Tick last_access = 0;
  std::int32_t hard_pins = 0;
  std::int32_t soft_pins = 0;
  std::int32_t fixed = 0;   // number of kernels and pins that know its address: it must not move
  std::int32_t demand = 0;  // number of ops that read it and have an evicted output that is needed
  std::uint32_t candidate_index = kNotCandidate;
  mutable std::uint32_t mark = 0;  // the last traversal that visited it
  Residency residency = Residency::kResident;
  bool escaped = false;    // code outside the engine has its address
  bool spillable = false;  // the spill tier accepts it
  bool writing = false;    // a kernel that pins it overwrites it
  bool copying = false;    // Note [Async copies]: an async copy is under way
  EngineFlags flags;
  BlockId slot;              // the slot of the spill tier that has or will have its content
  void* external = nullptr;  // device's record of a storage outside the pool

  static constexpr std::uint32_t kNotCandidate = 0xffffffff;
  [[nodiscard]] bool resident() const { return residency == Residency::kResident; }
  [[nodiscard]] bool evicted() const { return residency == Residency::kEvicted; }
  [[nodiscard]] bool spilled() const { return residency == Residency::kSpilled; }
  // It is resident, and the spill tier has a copy of its bytes.
  [[nodiscard]] bool clean() const { return resident() && slot.valid() && !copying; }
  // Nothing must be replayed to get its content.
  [[nodiscard]] bool has_content() const { return resident() || spilled(); }
  [[nodiscard]] bool recomputable() const { return producer.valid(); }
  // Its bytes may be freed: a replay or the spill tier can restore them.
  [[nodiscard]] bool evictable() const {
    return (spillable || recomputable()) && hard_pins == 0 && resident() && block.valid() &&
           !escaped && !flags.stays;
  }
  // A copy of it can be written to the spill tier, which has none.
  [[nodiscard]] bool writable() const { return spillable && evictable() && !slot.valid(); }
  // Its block may move as far as the metadata show: the device may still refuse. Asking the device
  // for every block of every plan took as long as the ops of a net with many small ones.
  [[nodiscard]] bool movable() const { return fixed == 0 && !escaped; }
  // The addresses of its block can become free.
  [[nodiscard]] bool clearable() const { return evictable() || movable(); }
  // The user, a running op or a waiting replay holds it.
  [[nodiscard]] bool held() const { return storage.valid() || hard_pins > 0 || soft_pins > 0; }
  // It will be used by its holder, or to restore an evicted value that is needed. The pin of a
  // kernel that overwrites it does not count.
  [[nodiscard]] bool needed() const {
    return storage.valid() || soft_pins > 0 || (hard_pins > 0 && !writing) || demand > 0;
  }
};

static_assert(sizeof(Value) <= 104, "there is one for each recorded value");

// One written storage of an op: its content before and after.
struct WrittenValue {
  ValueId before;  // invalid: the op overwrites all of it and reads nothing of it
  ValueId after;   // invalid: its record is gone
  Bytes nbytes;    // exact size of the storage
};

struct Op {
  void* payload = nullptr;  // owned by the device; released with the record
  Nanoseconds cost{0};
  Bytes workspace{0};  // peak of the bytes that its kernel held in addition to its outputs
  Bytes forgotten{0};  // size of outputs without a record, which a replay makes, too
  std::uint64_t sequence = 0;
  std::int32_t depth = 0;          // ops on the longest path from a non-recomputable value
  std::int32_t live_outputs = 0;   // number of outputs that still have a record
  bool demanding = false;          // has an output that is evicted and needed
  mutable std::uint32_t mark = 0;  // the last traversal that counted it
  boost::container::small_vector<EdgeId, 3> inputs;    // distinct values that it reads
  boost::container::small_vector<ValueId, 1> outputs;  // fresh; invalid where the record is gone
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
  // `traversals`: the number of marks that next_mark has returned before.
  explicit Lineage(std::uint32_t traversals = 0) : mark_(traversals) {}

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

  // Detaches a value from its producer, which makes it non-recomputable. If the producer has no
  // output left, returns it: the caller must pass it to remove_op.
  [[nodiscard]] OpId cut(ValueId value);
  // Removes an op without outputs. Its inputs, which lose a consumer, are appended to `orphans`.
  void remove_op(OpId op, std::vector<ValueId>& orphans) {
    remove_op(op, [&orphans](ValueId orphan, const Value&) { orphans.push_back(orphan); });
  }
  // Removes the op, and calls on_orphan(id, value) for each input.
  template <class Function>
  void remove_op(OpId op, Function&& on_orphan);
  // Removes the record of a value that has no consumer and no producer.
  void remove_value(ValueId value);

  // Updates `demanding` of the ops around a value, and what depends on it, after the value's
  // residency or its users changed. Values with content that are not needed any more are appended
  // to `useless`.
  void update_demand(ValueId changed, std::vector<ValueId>& useless);
  // Updates `demanding` after cut() has removed an output of the op.
  void update_demand_after_cut(OpId producer, std::vector<ValueId>& useless);

  [[nodiscard]] Nanoseconds total_cost() const { return total_cost_; }
  void set_cost(OpId op, Nanoseconds cost);
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }
  [[nodiscard]] std::size_t op_count() const { return ops_.size(); }
  [[nodiscard]] std::size_t memory() const {
    return values_.memory() + ops_.memory() + edges_.memory();
  }
  // A new mark for a traversal, which no value has yet.
  std::uint32_t next_mark() const {
    if (++mark_ == 0) [[unlikely]] {
      forget_marks();
    }
    return mark_;
  }

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
  void forget_marks() const;
  void unlink(EdgeId edge, Value& value);
  [[nodiscard]] bool is_wanted(ValueId id) const;
  [[nodiscard]] bool should_demand(const Op& op) const;
  void pass_demand_on(std::vector<ValueId>& useless);
  void set_demanding(OpId id, bool demanding, std::vector<ValueId>& useless);

  Slab<Value, ValueId> values_;
  Slab<Op, OpId> ops_;
  Slab<Edge, EdgeId> edges_;
  // Evicted values whose users have changed; a member to reuse its capacity.
  std::vector<ValueId> demand_work_;
  Nanoseconds total_cost_{0};
  std::uint64_t next_sequence_ = 0;
  mutable std::uint32_t mark_;
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
