// StepLog: what the running step has done so far, in a form that is equal in its next run.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/by_id.h"
#include "csrc/engine/program/engine.h"

namespace recoup::detail {

// Identifies a sequence of ops.
using StepHash = std::uint64_t;

// A result of an op of the step: its new storages in order, then the versions that it wrote. Or the
// content of a storage from before the step: of a new one of the previous step's ops, which have
// kLastStep added to their numbers, or of the one with this id.
struct Made {
  static constexpr std::uint32_t kLastStep = TraceEviction::kLastRun;
  static constexpr std::uint32_t kBefore = TraceEviction::kStorage;

  std::uint32_t op = 0;    // number of the op, from 0
  std::uint32_t slot = 0;  // number of the result; with kBefore: the storage's id
  [[nodiscard]] bool in_step() const { return op < kLastStep; }
  friend auto operator<=>(const Made&, const Made&) = default;
};

// What the storages from before a step are in a simulation of the step, which has other ids.
class StorageNames {
 public:
  void add(StorageId id, const Made& name) {
    names_[id] = name;
    ids_.emplace(name, id);
  }
  [[nodiscard]] std::optional<Made> name_of(StorageId id) const { return names_.get(id); }
  // Invalid: no storage has the name.
  [[nodiscard]] StorageId find(const Made& name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? StorageId() : found->second;
  }

 private:
  ById<StorageId, std::optional<Made>> names_;
  std::map<Made, StorageId> ids_;
};

// Note [Steps that repeat]
// Two steps are equal if their ops have the same names, use operands of the same sizes in the same
// way, which were made by the same ops, and make storages of the same sizes. So the hash of a step
// depends only on the program, not on what was evicted or frozen.
class StepLog {
 public:
  enum class Sizes : std::uint8_t { kCount, kIgnored };
  // `sizes`: whether steps with storages of other sizes differ. The engine must outlive it.
  explicit StepLog(const Engine& engine, Sizes sizes = Sizes::kCount)
      : engine_(engine), sizes_(sizes) {}
  // Storages from before the step, for a simulation. They must outlive the log.
  void set_names(const StorageNames* names) { names_ = names; }

  void begin_step();
  // Hash of all ops so far and of the op that is about to begin.
  [[nodiscard]] StepHash with(std::string_view name, std::span<const Operand> operands) const;
  // Adds an op that has ended: `hash` is the result of with() for it.
  void add_op(StepHash hash, const OpRecord& record, std::span<const Operand> operands,
              std::span<const StorageId> fresh);
  // Adds a storage that no op made.
  void add_storage(StorageId id) {
    made_last_[id] = 0;
    made_fresh_[id] = {};
  }

  // Hash of all ops so far.
  [[nodiscard]] StepHash hash() const { return hash_; }
  [[nodiscard]] std::uint32_t op_count() const { return op_count_; }
  // Results of the op by slot; sources have invalid tickets.
  [[nodiscard]] std::span<const ValueTicket> made_by(std::uint32_t op) const;
  // The op of this step, or of the previous one, that made the storage, if there is one. Slots
  // count new storages only.
  [[nodiscard]] std::optional<Made> maker_in_step(StorageId id) const;
  [[nodiscard]] std::optional<Made> maker_in_last_step(StorageId id) const;
  // The new storage of an op of this step; invalid: it does not exist, or not any more.
  [[nodiscard]] StorageId made_in_step(const Made& made) const {
    return find(fresh_, made.op, made.slot);
  }
  // What a storage from before the step is, and what it will be in the next step.
  [[nodiscard]] std::optional<Made> name_of(StorageId id) const;
  [[nodiscard]] std::optional<Made> name_in_next_step(StorageId id) const;
  // What made the value; nullopt: unknown.
  [[nodiscard]] std::optional<Made> find(ValueId id) const;
  // The value, if it still exists; invalid: it does not.
  [[nodiscard]] ValueId value(const Made& made) const;
  // The value, if it is a candidate for eviction; invalid: it is none.
  [[nodiscard]] ValueId candidate(const Made& made) const;
  // The value, if it is a candidate or is being written to the spill tier; invalid: it is neither.
  [[nodiscard]] ValueId spillable(const Made& made) const;

 private:
  struct Maker {
    std::uint64_t op = 0;  // number among all ops, from 1; 0: none
    std::uint32_t slot = 0;
  };

  [[nodiscard]] std::uint64_t counted(Bytes nbytes) const {
    return sizes_ == Sizes::kCount ? static_cast<std::uint64_t>(nbytes.count()) : 0;
  }
  [[nodiscard]] std::optional<Made> maker_since(StorageId id, std::uint64_t ops_before) const;
  void add_made(StorageId storage, std::uint32_t slot);
  [[nodiscard]] std::optional<Made> find_made(ValueId id) const;
  [[nodiscard]] bool is_orphan(ValueId id) const;
  [[nodiscard]] StorageId storage(const Made& before) const;

  const Engine& engine_;
  const Sizes sizes_;
  const StorageNames* names_ = nullptr;
  StepHash hash_ = 0;
  std::uint32_t op_count_ = 0;
  std::uint64_t all_ops_ = 0;   // number of ops of all steps
  std::uint64_t last_ops_ = 0;  // number of ops of the last step
  std::vector<ValueTicket> made_;
  // New storages by op, of this step and of the previous one.
  struct Fresh {
    std::vector<PinTicket> storages;
    std::vector<std::uint32_t> first{0};  // with an end marker
  };
  [[nodiscard]] StorageId find(const Fresh& fresh, std::size_t op, std::size_t slot) const;
  Fresh fresh_;
  Fresh last_fresh_;
  std::vector<std::uint32_t> first_made_{0};  // by op, with an end marker
  ById<ValueId, Made> by_value_;
  ById<StorageId, std::uint64_t> made_last_;  // number of the op among all ops, from 1; 0: none
  ById<StorageId, Maker> made_fresh_;
};

}  // namespace recoup::detail
