// What the engine and whoever runs ops tell each other about one op.
#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/engine/base/cost_memory.h"
#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup::detail {

// A storage that an op made: adopted from a block that its kernel allocated.
struct FreshStorage {
  BlockId block;
  Bytes nbytes;
  void* handle = nullptr;
  bool placed = false;  // as in HeldStorage: it was where it belongs before it was adopted
};

// A storage that an op wrote.
struct WrittenStorage {
  StorageId storage;
  bool overwritten = false;  // all of it was replaced and nothing of it read
};

// A distinct storage among an op's arguments.
struct Operand {
  StorageId storage;         // invalid: not of the engine, or no longer what it was
  ValueId value;             // its content when the op began, pinned until the op ends
  bool reads = false;        // the op looks at its bytes
  bool written = false;      // and may change them
  bool overwritten = false;  // all of them, without a look
  bool left_out = false;     // only in passing: a replay need not write them
  std::uint16_t index = 0;   // the caller's own, as the next
  void* owner = nullptr;
};

struct PartOperand {
  StorageId storage;
  bool written = false;
};

// What one part of an op on lists takes: its operands, each once, and what its kernel may allocate
// at most in one piece.
struct Part {
  std::vector<PartOperand> operands;
  Bytes workspace{0};
};

// What a finished op did.
struct OpRecord {
  std::span<const ValueId> inputs;  // distinct values whose bytes it read, written ones included
  std::span<const WrittenStorage> written;
  std::span<const FreshStorage> fresh;
  Nanoseconds cost{0};
  Bytes workspace{0};
  void* payload = nullptr;   // null: cannot be replayed, so what it made are leaves
  bool verifiable = true;    // false: some of its bytes are uninitialized
  bool recordable = false;   // ProgramOp::recordable has said yes: finish need not ask again
  Bytes record_bytes{0};     // of the payload
  bool repeatable = false;   // the op could be replayed, whatever the engine makes of that
  bool random = false;       // it drew random numbers
  CostKey cost_key = 0;      // Note [Costs are learned]
  std::uint32_t copies = 0;  // as TraceOp::copies

  // The bytes of the storages that it made.
  [[nodiscard]] Bytes made() const {
    Bytes sum{0};
    for (const FreshStorage& each : fresh) {
      sum += each.nbytes;
    }
    return sum;
  }
};

// A few T without an allocation. GCC 12's span does not take Boost's vectors as they are.
template <class T>
class Few {
 public:
  void push_back(const T& element) { elements_.push_back(element); }
  operator std::span<const T>() const { return {elements_.data(), elements_.size()}; }

 private:
  boost::container::small_vector<T, 4> elements_;
};

// The operands of an op that ended, sorted by what its record wants to know.
struct OpUses {
  explicit OpUses(std::span<const Operand> operands);
  Few<ValueId> inputs;
  Few<WrittenStorage> written;
  Few<WrittenStorage> in_passing;
};

// How much to free in one piece for an op that fails because free memory is in pieces: what it held
// and asked for when it failed, and more each time, until there is no more.
struct Retry {
  Bytes need{0};
  bool all_tried = false;
  [[nodiscard]] bool worth_it(const OutOfBudgetReport& report) {
    if (!report.fragmented || all_tried) {
      return false;
    }
    need = std::max(report.workspace + report.asked, need + report.asked);
    return true;
  }
};

}  // namespace recoup::detail
