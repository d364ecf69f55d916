// Values: the records of all values and storages. It has the one function that changes a value's
// residency, and it assigns bytes to values.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/base/handle.h"
#include "csrc/engine/base/held_storage.h"
#include "csrc/engine/base/op.h"
#include "csrc/engine/base/schedule_hooks.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/verifier.h"
#include "csrc/lineage/lineage.h"

namespace recoup::detail {

// Identifies a user's pin. Ids are used again, births are not.
struct PinTicket {
  StorageId storage;
  std::uint64_t birth = 0;
};

class Values {
 public:
  // All arguments must outlive this object.
  Values(Context& context, Candidates& candidates, Verifier& verifier);

  // ---- what a value is ----
  // The only function that changes a value's residency.
  void transition(ValueId id, Residency to, BlockId block = {});
  // Cuts a value from its lineage. Its bytes, if it has any, cannot be recomputed from now on.
  void make_non_recomputable(ValueId id, NoReplay why);
  // Attributes the value to the current module.
  void made(ValueId id) {
    if (context_.makers != nullptr) {
      context_.makers->made(id);
    }
  }
  void count_dead_source(ValueId id);
  // Whether the spill tier is open for the value: Note [Rules].
  [[nodiscard]] bool tier_takes(const Value& value) const {
    return !value.flags.off_tier && context_.tier.takes(value.nbytes);
  }
  // Sets whether the spill tier accepts the value, which a rule may forbid.
  void set_spillable(ValueId id, bool on) {
    lineage_[id].spillable = on && !lineage_[id].flags.off_tier;
    candidates_.update(id);
  }
  [[nodiscard]] Location location(ValueId id) const;

  // Waits for the copy of the value to or from the spill tier, if one is under way.
  void stop_copying(ValueId id);
  // Frees the spill tier's copy of a resident value, if it has one.
  void drop_copy(ValueId id);
  // Note [Copies of what is used]
  // A kernel is about to get the bytes of a pinned value. It may write storages that it does not
  // declare. If the device does not compare bytes with their copy, such a write would go unnoticed,
  // so the copy is freed. A value that the kernel declares to write keeps its copy: the value ends
  // with the write, and its dependents may be restored from the copy.
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
  // Ends a hard pin that also kept the value in place.
  void release(ValueId id) noexcept {
    Value& value = lineage_[id];
    --value.fixed;
    hard_unpin(id, value);
  }
  using HardPin = Handle<Values, ValueId, &Values::hard_unpin>;
  using SoftPin = Handle<Values, ValueId, &Values::soft_unpin>;
  // A hard pin that keeps the value in place: see Replayer::hold.
  using Hold = Handle<Values, ValueId, &Values::release>;
  [[nodiscard]] HardPin pin_hard(ValueId id) {
    hard_pin(id);
    return {*this, id};
  }
  [[nodiscard]] SoftPin pin_softly(ValueId id) {
    soft_pin(id);
    return {*this, id};
  }

  // ---- the end of a value ----
  // Frees the value if it is not needed, and all that becomes unneeded by that.
  void collect(ValueId id);
  // Collects the value at the next drain.
  void collect_later(ValueId id) { collect_work_.push_back(id); }
  void drain();
  // Ends a value whose storage is gone and that no op reads.
  void end(ValueId id);

  // ---- storages ----
  // Adds a storage over a block that a kernel held, with a non-recomputable value.
  StorageId add_storage(const FreshStorage& fresh);
  // Adds a storage outside the pool. Its bytes are charged already.
  StorageId add_external(void* handle, const OutsideStorage& outside);
  // Note [Leaving the pool]. Returns false and does nothing if the device cannot do it.
  [[nodiscard]] bool move_out(ValueId id);
  // Gives a storage to a value outside the pool whose former storage is gone.
  StorageId revive_external(ValueId id);
  // Frees the outside memory of a value, whose bytes have been copied elsewhere. What was charged
  // for it is no longer charged; bytes among Options::outside stay charged.
  void leave_outside(ValueId id);
  // Brings a value into the pool: frees its outside memory as leave_outside does, and gives it
  // `block`, which had no owner.
  void bring_in(ValueId id, BlockId block);
  // Removes a storage and returns its value, which has no owner now: the caller must call collect
  // or end on it.
  ValueId remove_storage(StorageId storage);
  [[nodiscard]] HeldStorage& operator[](StorageId id) { return storages_[id]; }
  [[nodiscard]] const HeldStorage& operator[](StorageId id) const { return storages_[id]; }
  [[nodiscard]] bool contains(StorageId id) const { return storages_.contains(id); }
  [[nodiscard]] ValueId current(StorageId id) const { return storages_[id].current; }
  template <class Function>
  void for_each_storage(Function&& function) const {
    storages_.for_each(function);
  }
  [[nodiscard]] PinTicket ticket(StorageId storage) const {
    return {.storage = storage, .birth = storages_[storage].birth};
  }
  // Whether the storage of the pin is still alive.
  [[nodiscard]] bool holds(const PinTicket& pin) const {
    return storages_.contains(pin.storage) && storages_[pin.storage].birth == pin.birth;
  }
  void set_immovable(HeldStorage& storage, bool wanted) {
    const bool on = wanted && lineage_[storage.current].external == nullptr;
    charges_.immovable_blocks += static_cast<int>(on) - static_cast<int>(storage.immovable);
    storage.immovable = on;
  }

  // ---- tickets of recorded values ----
  [[nodiscard]] ValueTicket ticket(ValueId id) const;
  // Whether the value is still on record.
  [[nodiscard]] bool holds(const ValueTicket& ticket) const;

  // ---- the bytes of values ----
  // Makes a new value the current one of the storage.
  ValueId add_version(StorageId storage);
  // Frees a block that a kernel held.
  void free_kernel_block(BlockId block);
  // A block of the pool that is charged and has no owner, as long as this object holds it.
  using KernelBlock = Handle<Values, BlockId, &Values::free_kernel_block>;
  // Charges a block that was just allocated.
  [[nodiscard]] KernelBlock charge_block(BlockId block, Bytes size) {
    charges_.add_kernel_block(size);
    return {*this, block};
  }
  // Ends the charge of a block that gets an owner, or is charged again.
  BlockId take_over(KernelBlock block) {
    charges_.remove_kernel_block(pool_.size(block.id()));
    return block.release();
  }
  // Gives a block to an evicted value that is needed; else frees the block.
  void give_block(ValueId id, KernelBlock block);
  // Gives the block of `from` to `to` by the same rule, and evicts `from`.
  void hand_over(ValueId from, ValueId to);
  // Gives an old version, which has no storage, a block with a copy of its bytes.
  void give_copy(ValueId before, KernelBlock block);
  // Note [Copy on write]: the block with the old content, if there is one. The storage has none
  // from now on.
  KernelBlock take_copy(HeldStorage& storage) noexcept {
    const BlockId block = std::exchange(storage.before_write, BlockId());
    return block.valid() ? KernelBlock(*this, block) : KernelBlock();
  }
  // Frees a block in the pool only. The caller updates the charges.
  void free_bytes(BlockId block);

  // Other code shares the bytes or has replaced them unseen: the engine must no longer free or move
  // them.
  void disown(ValueId id);

  // Recounts what is charged for values. `at_rest`: no op and no replay is running, so the only
  // pins are the user's and those of async copies.
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
  std::uint64_t next_birth_;  // starts at the clock's time, so that no later engine repeats a birth
  std::vector<ValueId> collect_work_;
  bool collecting_ = false;
};

}  // namespace recoup::detail
