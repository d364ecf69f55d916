// Values: what each one is, the one function that changes that, and who has which bytes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/engine/base/held_storage.h"
#include "csrc/engine/base/op.h"
#include "csrc/engine/base/schedule_hooks.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/verifier.h"
#include "csrc/lineage/lineage.h"

namespace recoup::detail {

// What a pin of the user's is on. Ids are used again, births are not.
struct PinTicket {
  StorageId storage;
  std::uint64_t birth = 0;
};

class Values {
 public:
  // All must outlive it.
  Values(Context& context, Candidates& candidates, Verifier& verifier);

  // ---- what a value is ----
  // The one function that changes a value's residency.
  void transition(ValueId id, Residency to, BlockId block = {});
  // Cuts a value from its lineage. Its bytes, if any, are all there is of it from now on.
  void make_non_recomputable(ValueId id);
  // Its content is of who runs now.
  void made(ValueId id) {
    if (context_.makers != nullptr) {
      context_.makers->made(id);
    }
  }
  void count_dead_source(ValueId id);
  // Whether the spill tier takes it, from now on.
  void set_spillable(ValueId id, bool on) {
    lineage_[id].spillable = on;
    candidates_.update(id);
  }
  [[nodiscard]] Location location(ValueId id) const;

  // A copy of it in the spill tier that is under way is waited for.
  void stop_copying(ValueId id);
  // The spill tier has no copy of a resident value any more.
  void drop_copy(ValueId id);
  // Note [Copies of what is used]
  // A kernel is about to get the bytes of a pinned value. It may write what it does not name. Where
  // that would not be found out there is no copy of it from now on. What the kernel is to write
  // ends with it, and what hangs on that may go on from the copy.
  void used(ValueId id) {
    if (!context_.options.spill_compares && !lineage_[id].writing) {
      stop_copying(id);
      drop_copy(id);
    }
  }

  // ---- pins ----
  void hard_pin(ValueId id) {
    Value& value = lineage_[id];
    if (++value.hard_pins == 1) {
      candidates_.update(id, value);
      if (value.evicted()) {
        lineage_.update_demand(id, collect_work_);
      }
    }
  }
  void hard_unpin(ValueId id) noexcept { hard_unpin(id, lineage_[id]); }
  void hard_unpin(ValueId id, Value& value) noexcept {
    if (--value.hard_pins == 0) {
      value.writing = false;
      candidates_.update(id, value);
      if (!value.storage.valid()) {
        collect(id);
      }
    }
  }
  void soft_pin(ValueId id);
  void soft_unpin(ValueId id);

  // ---- the end of a value ----
  // Frees what nobody needs, starting here, and what follows from that.
  void collect(ValueId id);
  // The same, at the next drain.
  void collect_later(ValueId id) { collect_work_.push_back(id); }
  void drain();
  // Its storage is gone, and nothing reads it.
  void end(ValueId id);

  // ---- storages ----
  // One over a block that a kernel held, as a non-recomputable value.
  StorageId add_storage(const FreshStorage& fresh);
  // One outside the pool, which is charged by now.
  StorageId add_external(void* handle, Bytes nbytes, bool among_outside);
  // Note [Leaving the pool]: false, and nothing done, where the device cannot.
  [[nodiscard]] bool move_out(ValueId id);
  // A value outside the pool whose storage was gone has a storage again.
  StorageId revive_external(ValueId id);
  // What it holds outside of the pool has been copied elsewhere: its own memory is given back.
  void leave_outside(ValueId id);
  // The same, and it is in that block, which nobody owns, from now on.
  void bring_in(ValueId id, BlockId block);
  // It is gone, and its content is nobody's for now: settle or end the value, which this returns.
  ValueId remove_storage(StorageId storage);
  [[nodiscard]] HeldStorage& operator[](StorageId id) { return storages_[id]; }
  [[nodiscard]] const HeldStorage& operator[](StorageId id) const { return storages_[id]; }
  [[nodiscard]] ValueId current(StorageId id) const { return storages_[id].current; }
  template <class Function>
  void for_each_storage(Function&& function) const {
    storages_.for_each(function);
  }
  [[nodiscard]] PinTicket ticket(StorageId storage) const {
    return {.storage = storage, .birth = storages_[storage].birth};
  }
  // Whether the storage of a pin is still alive.
  [[nodiscard]] bool holds(const PinTicket& pin) const {
    return storages_.contains(pin.storage) && storages_[pin.storage].birth == pin.birth;
  }
  void set_immovable(HeldStorage& storage, bool wanted) {
    const bool on = wanted && lineage_[storage.current].external == nullptr;
    charges_.immovable_blocks += static_cast<int>(on) - static_cast<int>(storage.immovable);
    storage.immovable = on;
  }

  // ---- recorded values, for who remembers them ----
  [[nodiscard]] ValueTicket ticket(ValueId id) const;
  // Whether the value is still on record.
  [[nodiscard]] bool holds(const ValueTicket& ticket) const;

  // ---- who has which bytes ----
  // A new value becomes what the storage holds.
  ValueId add_version(StorageId storage);
  // Gives a kernel-held block to an evicted value that is needed; frees it otherwise.
  void give_block(ValueId id, BlockId block);
  // Gives the block of `from`, which is evicted by it, to `to` by the same rule.
  void hand_over(ValueId from, ValueId to);
  // A version that a storage no longer has gets a copy of the bytes that it had.
  void give_copy(ValueId before, BlockId block);
  // Note [Copy on write]: frees the block from before, if there is one.
  void discard_copy(HeldStorage& storage) noexcept {
    if (storage.before_write.valid()) {
      free_kernel_block(std::exchange(storage.before_write, BlockId()));
    }
  }
  // Frees a block that a kernel held.
  void free_kernel_block(BlockId block);
  // Of the pool alone: its bytes are nobody's any more.
  void free_bytes(BlockId block);

  // Somebody shares or replaced its bytes where nobody saw it: they are not ours to take, or to
  // move.
  void disown(ValueId id);

  // Recounts what is charged for values. `at_rest`: no op and no replay is under way, so nothing is
  // pinned but what the user pinned.
  void check(bool at_rest) const;

 private:
  void give_back_slot(Value& value);
  void collect_one(ValueId id);
  void cut(ValueId id);
  void remove_record(ValueId id);
  void release_payload(void* payload) noexcept;

  Context& context_;
  Device& device_;
  Pool& pool_;
  Lineage& lineage_;
  Charges& charges_;
  Candidates& candidates_;
  Verifier& verifier_;
  HeldStorages storages_;
  std::uint64_t next_birth_;  // starts at the clock's time: not even a later engine repeats one
  std::vector<ValueId> collect_work_;
  bool collecting_ = false;
};

}  // namespace recoup::detail
