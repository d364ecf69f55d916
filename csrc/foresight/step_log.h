// StepLog: what the running step has done so far, in terms that its next run repeats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/engine/program/engine.h"

namespace recoup::detail {

// Tells one way through a program from another.
using StepHash = std::uint64_t;

// What an op of the step made: its fresh storages in order, then the versions that it wrote.
struct Made {
  std::uint32_t op = 0;  // from 0
  std::uint32_t slot = 0;
  friend bool operator==(const Made&, const Made&) = default;
};

// Note [Steps that repeat]
// Two steps are the same when their ops have the same names, sizes
// and uses of their operands, which come from the same ops, and make storages of the same sizes. So
// the hash of a step depends on the program alone, never on what was evicted or frozen.
class StepLog {
 public:
  // It must outlive this.
  explicit StepLog(const Engine& engine) : engine_(engine) {}

  void begin_step();
  // Of all ops so far, and the one that is about to begin.
  [[nodiscard]] StepHash with(std::string_view name, std::span<const Operand> operands) const;
  // That op has ended: `hash` is what `with` said of it.
  void add_op(StepHash hash, const OpRecord& record, std::span<const Operand> operands,
              std::span<const StorageId> fresh);
  // A storage that no op made.
  void add_storage(StorageId id) {
    set_maker(id, 0);
    set_fresh_maker(id, {});
  }

  // Of all ops so far.
  [[nodiscard]] StepHash hash() const { return hash_; }
  [[nodiscard]] std::uint32_t op_count() const { return op_count_; }
  // All that the op made, by slot; a non-recomputable value has no value.
  [[nodiscard]] std::span<const ValueTicket> made_by(std::uint32_t op) const;
  // Which op made that storage, if one of this step, or of the step before, did; slots are of the
  // fresh ones.
  [[nodiscard]] std::optional<Made> maker_in_step(StorageId id) const;
  [[nodiscard]] std::optional<Made> maker_in_last_step(StorageId id) const;
  // What that value is, if this step made it.
  [[nodiscard]] std::optional<Made> find(ValueId id) const;

 private:
  struct Maker {
    std::uint64_t op = 0;  // among all, from 1; or 0
    std::uint32_t slot = 0;
  };

  void set_maker(StorageId id, std::uint64_t op);
  void set_fresh_maker(StorageId id, const Maker& maker);
  [[nodiscard]] std::optional<Made> maker_since(StorageId id, std::uint64_t ops_before) const;
  void add_made(StorageId storage, std::uint32_t slot);

  const Engine& engine_;
  StepHash hash_ = 0;
  std::uint32_t op_count_ = 0;
  std::uint64_t all_ops_ = 0;   // of all steps
  std::uint64_t last_ops_ = 0;  // of the last step
  std::vector<ValueTicket> made_;
  std::vector<std::uint32_t> first_made_{0};  // by op, and behind the last
  std::vector<Made> by_value_;                // by ValueId
  std::vector<std::uint64_t> made_last_;  // by StorageId: the op that did, among all, from 1; or 0
  std::vector<Maker> made_fresh_;         // by StorageId
};

}  // namespace recoup::detail
