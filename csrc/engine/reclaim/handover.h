// Handover: gives the block of an operand to a result of the same op.
#pragma once

#include <optional>
#include <span>

#include "csrc/engine/base/op.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"

namespace recoup::detail {

// Note [Results in place]
// An op that does not fit although all candidates have been evicted may fit if a result takes the
// block of an operand. The operand's value is evicted, too, and can be restored like any other.
// The kernel runs again, reads the operand's bytes where they are, and the first allocation of
// their size gets the block: the kernel overwrites bytes that it has read. The caller knows for
// which operands of which ops that gives the same bits.
class Handover {
 public:
  // The reason of an op that fails because is_among is false.
  static constexpr const char* kNotTaken = "its result did not get the block of an operand";

  // All arguments must outlive this object.
  Handover(Context& context, Values& values, Evictor& evictor);

  // Evicts a value that is pinned once, by the op whose kernel did not fit, and keeps its block for
  // an allocation of `asked` bytes, or of its own size. The pin stays. False: that is impossible.
  [[nodiscard]] bool offer(ValueId id, std::optional<Bytes> asked);
  // Offers the first of these values that can be offered. False: none can.
  [[nodiscard]] bool offer_one(std::span<const ValueId> ids, std::optional<Bytes> asked);
  // The block, for an allocation of as many bytes as the value has, which charges it; nullopt:
  // there is none.
  [[nodiscard]] std::optional<BlockId> take(Bytes nbytes);
  // The value of the last offer, until end; invalid: there is none.
  [[nodiscard]] ValueId value() const { return value_; }
  [[nodiscard]] Bytes nbytes() const { return nbytes_; }
  // Where the value's bytes are, until they are overwritten.
  [[nodiscard]] PoolOffset offset() const { return offset_; }
  [[nodiscard]] bool taken() const { return taken_.valid(); }
  // Whether one of these blocks is the one that was taken, or none was. If not, the kernel may have
  // overwritten bytes before it read them.
  [[nodiscard]] bool is_among(std::span<const BlockId> results) const;
  // The kernel has ended. Frees the block if it has not been taken. `end_well`: the results are
  // right, and are counted.
  void end();
  void end_well();

 private:
  void evict(ValueId id);

  Context& context_;
  Pool& pool_;
  Values& values_;
  Evictor& evictor_;
  ValueId value_;
  Bytes nbytes_{0};
  PoolOffset offset_;
  Values::KernelBlock offered_;  // empty: it has been taken, or there is none
  BlockId taken_;
};

}  // namespace recoup::detail
