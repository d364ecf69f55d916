// AsyncCopies: copies to and from the spill tier, and those of them that go on while ops run.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "csrc/engine/base/copy_wait.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "recoup/stats.h"

namespace recoup::detail {

// Note [Copies beside ops]
// A copy that goes on beside ops is a copy, until it has landed. A value that is being written
// keeps its bytes where they are: it is pinned, and who is about to change them lands it first. A
// block into which one is being read is charged, and nobody's; the value is spilled until then.
//
// What is decided must not depend on how quick the disk is today, or a simulation would decide
// otherwise than a run. So copies are on a clock of their own: the costs of ops and what was
// waited for. By it each takes its price, one after the other. Who needs one that has not landed
// waits for what is left of it, and those behind it wait as long. A copy whose time is over is
// landed; should the disk still be at it, that is waited for.
class AsyncCopies final : public CopyWait {
 public:
  // Both must outlive it.
  AsyncCopies(Context& context, Values& values);

  // ---- copies that are waited for ----
  // Writes a value that has bytes to its slot. False: it cannot be; the tier is closed then.
  [[nodiscard]] bool write(ValueId id, BlockId slot);
  // Reads a spilled value into a block that a kernel held, which becomes its own. Throws what the
  // device throws; then nothing has changed.
  void read(ValueId id, BlockId block);

  // ---- copies beside ops ----
  // Of a resident value that nobody pins. The slot is its own from now on.
  void begin_write(ValueId id, BlockId slot);
  // Of a spilled value, into a block that is nobody's.
  void begin_read(ValueId id, BlockId block);
  [[nodiscard]] bool any() const { return !copies_.empty(); }
  [[nodiscard]] bool writing() const { return writes_ > 0; }
  [[nodiscard]] std::size_t writes() const { return writes_; }
  // The values' bytes.
  [[nodiscard]] Bytes in_writing() const;
  [[nodiscard]] bool contains(ValueId id) const { return context_.lineage[id].copying; }
  // Lands those whose time is over.
  void finish_ended();
  void wait(ValueId id) override;
  // False: there was none.
  bool wait_for_all();

  // What was waited for the device, measured, by the op for which it was.
  [[nodiscard]] std::vector<CopyWaitRow> waits() const;

  void check() const;

 private:
  struct Copy {
    ValueId value;
    BlockId block;  // that it is read into; invalid: it is written
    Nanoseconds left{0};
  };

  void begin(const Copy& copy);
  void advance();
  void finish_at(std::size_t index);
  void end_write(ValueId id);
  void end_read(ValueId id, BlockId block);
  void make_resident(ValueId id, BlockId block);
  [[nodiscard]] bool written(Bytes to);
  void end_fetch(Bytes from);
  void wait_for(Nanoseconds cost);
  void close();
  CopyWaitRow& waits_of_op();

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Tier& tier_;
  std::size_t writes_ = 0;                                 // of the copies
  std::vector<Copy> copies_;                               // in the order in which they began
  std::map<std::string, CopyWaitRow, std::less<>> waits_;  // by op
  Nanoseconds time_{0};                                    // to which they have been worked off
  std::int64_t spills_ = 0;                                // that have ended, for TestAids
  std::int64_t fetches_ = 0;
};

}  // namespace recoup::detail
