// A model of the simulator that the authors of DTR published (ICLR 2021), for comparison with their
// figures. It shares nothing with the engine: it has no pool, replays in another order, and treats
// a view as an op to be replayed. docs/research/dtr.md has its rules.
//
//   tensor    a result of an op; a view is a tensor of its argument's storage
//   storage   the unit of eviction: its tensors are evicted together and restored one by one
//   constant  an external storage: never evicted
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recoup/api.h"
#include "recoup/simulation.h"
#include "recoup/types.h"

namespace recoup {

// Ids of records of a DtrProgram.
using DtrTensorId = Id<struct DtrTensorTag>;    // id of a tensor
using DtrStorageId = Id<struct DtrStorageTag>;  // id of a storage
using DtrOpId = Id<struct DtrOpTag>;            // id of an op; constants are ops, too

// A result of an op: a new storage or a view of an argument.
struct DtrOutput {
  Bytes size{0};            // bytes of a new storage; 0 for a view
  std::int32_t alias = -1;  // position of the argument that it is a view of; -1 for a new storage
};

// A tensor of the program.
struct DtrTensor {
  DtrOpId op;            // op that makes it
  DtrStorageId storage;  // its storage
  Bytes size{0};         // bytes that its op allocates for it; 0 for a view
  // What it adds to the cost of its storage: the cost of its op, or 0 if another view made by the
  // same op has already added that.
  Nanoseconds cost{0};
};

// A storage from which another one is computed, or that is computed from it.
struct DtrNeighbor {
  DtrOpId op;            // the first op that reads one and returns the other
  DtrStorageId storage;  // the neighbor
};

// A storage of the program.
struct DtrStorage {
  Bytes size{0};                     // bytes
  bool constant = false;             // whether it is a constant
  std::vector<DtrTensorId> tensors;  // the tensor that owns the storage, then its views
  // Storages from which it is computed, each once, in the order of their ops. Constants are left
  // out: they are never evicted.
  std::vector<DtrNeighbor> parents;
  std::vector<DtrNeighbor> children;  // storages that are computed from it, listed like parents
};

// An op of the program.
struct DtrOp {
  std::string name;                    // for messages
  Nanoseconds cost{0};                 // cost
  Bytes size{0};                       // bytes of all outputs
  std::vector<DtrTensorId> arguments;  // as called: a tensor may occur twice
  std::vector<DtrTensorId> outputs;    // results
};

// A step of the program.
struct DtrStep {
  // What can happen.
  enum class Kind : std::uint8_t {
    kConstant,  // op `index`, without cost and arguments, makes a constant
    kOp,        // op `index` runs
    kHold,      // tensor `index` gains a holder
    kRelease,   // tensor `index` loses a holder
    kKeep,      // tensor `index` is needed at the end: it is restored if evicted, and stays
  };
  Kind kind = Kind::kOp;    // what happens
  std::uint32_t index = 0;  // number of the op or tensor
};

// A program, built in the order of its execution. Functions that add to it throw
// std::invalid_argument, which names the op or the tensor, for steps that are impossible.
class RECOUP_API DtrProgram {
 public:
  // Adds a constant of `size` bytes with one holder.
  DtrTensorId add_constant(Bytes size);
  // Adds an op with at least one output. Returns its outputs, each with one holder.
  std::vector<DtrTensorId> add_op(std::string name, Nanoseconds cost,
                                  std::vector<DtrTensorId> arguments,
                                  std::span<const DtrOutput> outputs);
  // Adds a holder to a tensor.
  void hold(DtrTensorId tensor);
  // Removes a holder from a tensor.
  void release(DtrTensorId tensor);
  // Keeps a tensor at the end, see DtrStep::Kind::kKeep.
  void keep(DtrTensorId tensor);

  // The record of an id.
  [[nodiscard]] const DtrTensor& operator[](DtrTensorId id) const { return tensors_[id.index()]; }
  [[nodiscard]] const DtrStorage& operator[](DtrStorageId id) const {
    return storages_[id.index()];
  }
  [[nodiscard]] const DtrOp& operator[](DtrOpId id) const { return ops_[id.index()]; }
  // Number of tensors, constants included.
  [[nodiscard]] std::size_t tensor_count() const { return tensors_.size(); }
  // Number of storages, constants included.
  [[nodiscard]] std::size_t storage_count() const { return storages_.size(); }
  // All steps in order.
  [[nodiscard]] std::span<const DtrStep> steps() const { return steps_; }
  // Number of ops without constants.
  [[nodiscard]] std::int64_t op_count() const { return op_count_; }
  // Cost of all ops, each counted once.
  [[nodiscard]] Nanoseconds cost() const { return cost_; }
  // Peak of live bytes if each storage, constants included, is freed with its last holder. The
  // budgets of DTR's figures are fractions of this peak.
  [[nodiscard]] Bytes peak() const { return peak_; }

 private:
  void check(DtrTensorId tensor) const;
  void check_held(DtrTensorId tensor) const;
  DtrOpId add(DtrStep::Kind kind, DtrOp op);
  DtrTensorId add_tensor(DtrOpId op, DtrStorageId storage, Bytes size);
  DtrStorageId add_storage(Bytes size, bool constant);
  void connect(DtrOpId id);

  std::vector<DtrTensor> tensors_;
  std::vector<DtrStorage> storages_;
  std::vector<DtrOp> ops_;
  std::vector<DtrStep> steps_;
  std::vector<std::int32_t> holders_;  // number of holders of each storage after the steps so far
  std::int64_t op_count_ = 0;
  Nanoseconds cost_{0};
  Bytes held_{0};
  Bytes peak_{0};
};

// Factors of the score cost / (size * staleness) of section 4.1 of the paper and its ablation. The
// storage with the lowest score is evicted.
struct DtrScore {
  // Which ops count towards the cost.
  enum class Cost : std::uint8_t {
    kNone,         // none: the cost is 1
    kLocal,        // the ops that made the storage's tensors
    kAncestors,    // kLocal plus the ops of its evicted ancestors
    kExact,        // kAncestors plus the ops of its evicted descendants: e*
    kEquivalence,  // kLocal plus the components next to it, maintained by union-find: e~*
  };
  Cost cost = Cost::kExact;  // cost factor
  bool staleness = true;     // divide by the time since the last use
  bool size = true;          // divide by the size
};

// Description of a policy.
struct DtrPolicyInfo {
  std::string_view name;  // name, for simulate_dtr()
  DtrScore score;         // its score
};

// The six policies of the paper's figures, then the other policies of its ablation.
RECOUP_API std::span<const DtrPolicyInfo> dtr_policies();

// Runs the program in `budget` bytes. The run ends as too slow when replays have cost more than
// (`max_time_ratio` - 1) times all ops of the program; 0: no limit. Throws std::invalid_argument,
// which lists all names, for an unknown policy.
RECOUP_API SimulationResult simulate_dtr(const DtrProgram& program, std::string_view policy,
                                         Bytes budget, double max_time_ratio);

}  // namespace recoup
