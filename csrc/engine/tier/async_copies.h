// AsyncCopies: copies to and from the spill tier, synchronous ones and ones that overlap with ops.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/copy_wait.h"
#include "csrc/engine/state/values.h"
#include "recoup/stats.h"

namespace recoup::detail {

// Note [Async copies]
// A value that is being written keeps its bytes in place: it is pinned, and code that is about to
// change them waits for the write first. A block into which a value is being read is charged, but
// without an owner until the read completes; until then the value counts as spilled.
//
// Decisions must not depend on the disk's current speed, or a simulation would decide differently
// from a live run. So copies have a clock of their own: the cost of ops, the time spent waiting for
// copies, and the fraction of async copies that slows down ops (kProcessorFraction). On this clock
// each copy takes its full time, one after the other. A caller that needs an unfinished copy waits
// for the rest of its time. All other copies are delayed by as much. A copy whose time is over is
// finished; if the disk has not completed it by then, the engine waits for the disk.
class AsyncCopies final : public CopyWait {
 public:
  // Both arguments must outlive this object.
  AsyncCopies(Context& context, Values& values);

  // ---- synchronous copies ----
  // Writes a value's bytes to a slot. False: the write failed, and the tier is closed.
  [[nodiscard]] bool write(ValueId id, BlockId slot);
  // Reads a spilled value into a block, which the value owns afterwards. Throws what the device
  // throws; the value has not changed then.
  void read(ValueId id, Values::KernelBlock block);

  // ---- async copies ----
  // Begins to write a resident, unpinned value. It owns the slot from now on.
  void begin_write(ValueId id, Tier::Slot slot);
  // Begins to read a spilled value into a block without an owner.
  void begin_read(ValueId id, NewBlock block);
  // The value that is being read into the block; invalid: none.
  [[nodiscard]] ValueId read_into(BlockId block) const;
  // Whether the block's content is being written or read.
  [[nodiscard]] bool holds(BlockId block) const;
  // Whether a value without a storage is copied. Its block is free when the copy ends.
  [[nodiscard]] bool any_dead() const;
  [[nodiscard]] bool any() const { return !copies_.empty(); }
  [[nodiscard]] bool writing() const { return writes_ > 0; }
  [[nodiscard]] std::size_t writes() const { return writes_; }
  // Total size of the values that are being written.
  [[nodiscard]] Bytes in_writing() const;
  [[nodiscard]] bool contains(ValueId id) const { return context_.lineage[id].copying; }
  // Finishes the copies whose time is over.
  void finish_ended();
  void wait(ValueId id) override;
  // False: no copy was under way.
  bool wait_for_all();
  // The time after which all copies under way are finished.
  [[nodiscard]] Nanoseconds time_left();

  // Measured time spent waiting for the device, by the op that waited.
  [[nodiscard]] std::vector<CopyWaitRow> waits() const;

  void check() const;

 private:
  struct Copy {
    ValueId value;
    BlockId block;  // destination of a read; invalid for a write
    Nanoseconds left{0};
    Values::HardPin pin;
  };

  void begin(Copy copy);
  void advance();
  void finish_at(std::size_t index);
  void end_write(ValueId id);
  void end_read(ValueId id, BlockId block);
  void make_resident(ValueId id, BlockId block);
  void start_write(ValueId id, BlockId slot);
  void start_read(ValueId id, BlockId block);
  [[nodiscard]] bool written(BlockId slot);
  void finish_read(ValueId id);
  void copy_now(Nanoseconds cost);
  void wait_for(Nanoseconds cost);
  void close();
  CopyWaitRow& waits_of_op();

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Tier& tier_;
  std::size_t writes_ = 0;                                 // the number of writes in copies_
  std::vector<Copy> copies_;                               // in the order in which they began
  std::map<std::string, CopyWaitRow, std::less<>> waits_;  // by op name
  Nanoseconds time_{0};                                    // up to which copies_ have been advanced
  std::int64_t spills_ = 0;  // the number of writes that have ended, for TestAids
  std::int64_t fetches_ = 0;
};

}  // namespace recoup::detail
