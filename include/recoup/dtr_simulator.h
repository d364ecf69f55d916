// A model of the simulator that was published with DTR (ICLR 2021), to be set beside its figures.
// It is no part of the engine: it has no pool, replays in another order, and a view is an op to be
// replayed. docs/dtr-simulator.md has its rules.
//
//   tensor    what an op returns; a view is a tensor of its argument's storage
//   storage   the unit of eviction: all of its tensors go with it and come back one by one
//   constant  a storage from outside: never evicted
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recoup/api.h"
#include "recoup/simulate.h"
#include "recoup/types.h"

namespace recoup {

using DtrTensorId = Id<struct DtrTensorTag>;
using DtrStorageId = Id<struct DtrStorageTag>;
using DtrOpId = Id<struct DtrOpTag>;

// What an op returns: a storage of `size` bytes, or a view of an argument.
struct DtrOutput {
  Bytes size{0};            // 0 for a view
  std::int32_t alias = -1;  // the place of the argument that it is a view of; -1: of none
};

struct DtrTensor {
  DtrOpId op;
  DtrStorageId storage;
  Bytes size{0};  // that its op allocates for it
  // What it adds to the cost of its storage: its op's, but nothing if a view beside it added that.
  Nanoseconds cost{0};
};

// A storage that is made from another one, or that another one is made from.
struct DtrNeighbor {
  DtrOpId op;  // the first that reads the one and returns the other
  DtrStorageId storage;
};

struct DtrStorage {
  Bytes size{0};
  bool constant = false;
  std::vector<DtrTensorId> tensors;  // the one that its op allocates it for, then views
  // Each once, in the order of their ops. Constants are left out: they are never evicted.
  std::vector<DtrNeighbor> parents;
  std::vector<DtrNeighbor> children;
};

struct DtrOp {
  std::string name;
  Nanoseconds cost{0};
  Bytes size{0};                       // of all its outputs
  std::vector<DtrTensorId> arguments;  // as called: a tensor may be there twice
  std::vector<DtrTensorId> outputs;
};

struct DtrStep {
  enum class Kind : std::uint8_t {
    kConstant,  // op `index`, which has no cost and no arguments, makes one
    kOp,        // op `index` runs
    kHold,      // tensor `index` gets one more holder
    kRelease,   // and loses one
    kKeep,      // is wanted in the end: it comes back if it must, and stays
  };
  Kind kind = Kind::kOp;
  std::uint32_t index = 0;
};

// What a program did, built in the order in which it did it. Whatever cannot have happened throws
// std::invalid_argument, which names the op or the tensor.
class RECOUP_API DtrProgram {
 public:
  // One holder has it.
  DtrTensorId add_constant(Bytes size);
  // Returns the outputs, at least one; each has one holder.
  std::vector<DtrTensorId> add_op(std::string name, Nanoseconds cost,
                                  std::vector<DtrTensorId> arguments,
                                  std::span<const DtrOutput> outputs);
  void hold(DtrTensorId tensor);
  void release(DtrTensorId tensor);
  void keep(DtrTensorId tensor);

  [[nodiscard]] const DtrTensor& operator[](DtrTensorId id) const { return tensors_[id.index()]; }
  [[nodiscard]] const DtrStorage& operator[](DtrStorageId id) const {
    return storages_[id.index()];
  }
  [[nodiscard]] const DtrOp& operator[](DtrOpId id) const { return ops_[id.index()]; }
  [[nodiscard]] std::size_t tensor_count() const { return tensors_.size(); }
  [[nodiscard]] std::size_t storage_count() const { return storages_.size(); }
  [[nodiscard]] std::span<const DtrStep> steps() const { return steps_; }
  // Constants are not counted.
  [[nodiscard]] std::int64_t op_count() const { return op_count_; }
  // Of all ops, each once.
  [[nodiscard]] Nanoseconds cost() const { return cost_; }
  // The most bytes at once when each storage, constants too, is freed with its last holder: the
  // peak that the budgets of DTR's figures are shares of.
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
  std::vector<std::int32_t> holders_;  // of each storage, after the steps so far
  std::int64_t op_count_ = 0;
  Nanoseconds cost_{0};
  Bytes held_{0};
  Bytes peak_{0};
};

// The lowest score is evicted: cost / (size * staleness), or only some of these factors (section
// 4.1 of the paper, and its ablation).
struct DtrScore {
  enum class Cost : std::uint8_t {
    kNone,         // 1
    kLocal,        // of the ops that made the storage's tensors
    kAncestors,    // and of those of its evicted ancestors
    kExact,        // and of its evicted descendants: e*
    kEquivalence,  // or of the components next to it, kept by union-find: e~*
  };
  Cost cost = Cost::kExact;
  bool staleness = true;
  bool size = true;
};

struct DtrPolicyInfo {
  std::string_view name;
  DtrScore score;
};

// The six policies of the paper's figures, then what else its ablation compares.
RECOUP_API std::span<const DtrPolicyInfo> dtr_policies();

// Runs the program in `budget` bytes. It ends as too slow when replays have cost more than
// `max_time_ratio` - 1 times all ops of the program; 0: no bound. Throws std::invalid_argument,
// naming the policies there are, when `policy` is none of them.
RECOUP_API SimulationResult simulate_dtr(const DtrProgram& program, std::string_view policy,
                                         Bytes budget, double max_time_ratio);

}  // namespace recoup
