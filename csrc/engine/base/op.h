// What the engine and its callers exchange about one op.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/few.h"
#include "csrc/engine/base/cost_memory.h"
#include "csrc/lineage/no_replay.h"
#include "recoup/types.h"

namespace recoup::detail {

// Identifies an allocation of overflow memory while its kernel runs. Overflow memory: memory
// outside of the pool that a kernel gets for what does not fit in it.
enum class OverflowKey : std::uint64_t { kNone = 0 };

// A storage that an op made: adopted from a block that its kernel allocated, or in overflow memory.
struct FreshStorage {
  BlockId block;  // invalid: in overflow memory
  Bytes nbytes;
  void* handle = nullptr;
  bool placed = false;                        // initial value of HeldStorage::placed
  OverflowKey overflow = OverflowKey::kNone;  // its allocation in overflow memory
};

// A storage that was made outside the pool.
struct OutsideStorage {
  Bytes nbytes;
  bool among_outside = false;  // its bytes are part of Options::outside
  SegmentId segment{};         // Note [Segments]; invalid: none that can be imported
  bool window = false;         // the charge for overflow memory, not a storage
};

// Note [Segments]. The bytes that the allocator of a segment returns to the driver when the
// registered storages have left the segment. 0: it returns none.
struct SegmentChange {
  SegmentId segment;
  Bytes returnable;
};

// A storage that an op wrote.
struct WrittenStorage {
  StorageId storage;
  bool overwritten = false;  // replaced completely without being read
};

// A distinct storage among an op's arguments.
struct Operand {
  StorageId storage;         // invalid: not the engine's, or it has got other memory since
  ValueId value;             // its content when the op began, pinned until the op ends
  bool reads = false;        // the op reads its bytes
  bool written = false;      // the op may change its bytes
  bool overwritten = false;  // the op replaces all bytes without reading them
  bool left_out = false;     // the write is a side effect that a replay need not repeat
  // A result of the same size may overwrite its bytes while the kernel runs.
  bool overwritable = false;
  std::uint32_t index = 0;  // for the caller's own use, like `owner`
  void* owner = nullptr;
};

// Whether an op changes an operand of which there is no copy.
[[nodiscard]] inline bool writes_uncopied(std::span<const Operand> operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
    return operand.written && !operand.left_out && !operand.overwritten;
  });
}

struct PartOperand {
  StorageId storage;
  bool written = false;
};

// One part of an op on lists: its distinct operands and the largest single allocation of its
// kernel.
struct Part {
  std::vector<PartOperand> operands;
  Bytes workspace{0};
};

// How the kernel of an op may run: Note [Attempts].
struct KernelLimits {
  bool may_overflow = false;  // what it allocates may be in overflow memory
  // It must not run twice: it changes an operand of which there is no copy, or draws random numbers
  // that cannot be drawn again.
  bool once = false;
};

// What a finished op did.
struct OpRecord {
  std::span<const ValueId> inputs;  // distinct values that it read, including those it wrote
  std::span<const WrittenStorage> written;
  std::span<const FreshStorage> fresh;
  Nanoseconds cost{0};
  Bytes workspace{0};
  void* payload = nullptr;  // null: not replayable, so its results are non-recomputable values
  bool verifiable = true;   // false: some of its bytes are uninitialized
  bool recordable = false;  // ProgramOp::why_unrecorded has returned kNone for it
  Bytes record_bytes{0};    // size of the payload
  bool repeatable = false;  // the op is replayable, even if it is not recorded
  NoReplay why = NoReplay::kNone;  // why its results are non-recomputable; kNone: not known yet
  bool random = false;             // it drew random numbers
  CostKey cost_key = 0;            // Note [Costs are learned]
  std::uint32_t copies = 0;        // see TraceOp::copies
  KernelLimits limits{};

  // Total size of the storages that the op made.
  [[nodiscard]] Bytes made() const {
    Bytes sum{0};
    for (const FreshStorage& each : fresh) {
      sum += each.nbytes;
    }
    return sum;
  }
};

// The values that the op with these operands has pinned, or is about to pin.
inline Few<ValueId> pinned_by(std::span<const Operand> operands) {
  Few<ValueId> pinned;
  pinned.reserve(operands.size());
  for (const Operand& operand : operands) {
    if (operand.value.valid()) {
      pinned.push_back(operand.value);
    }
  }
  return pinned;
}

// The operands of a finished op, sorted as OpRecord needs them.
struct OpUses {
  explicit OpUses(std::span<const Operand> operands);
  Few<ValueId> inputs;
  Few<WrittenStorage> written;
  Few<WrittenStorage> in_passing;
};

}  // namespace recoup::detail
