// Values: what each one is, the one function that changes that, and who has which bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/slab.h"
#include "csrc/engine/candidates.h"
#include "csrc/engine/device.h"
#include "csrc/engine/verifier.h"
#include "csrc/lineage/lineage.h"
#include "csrc/pool/pool.h"
#include "recoup/options.h"
#include "recoup/stats.h"

namespace recoup::detail {

// A storage of the program, and which value it holds.
struct HeldStorage {
  ValueId current;
  void* handle = nullptr;
  std::int32_t user_pins = 0;  // part of its current value's hard pins
  std::uint64_t birth = 0;     // tells it from an earlier one with the same id
  BlockId before_write{};      // Note [Copy on write]: while an op writes it
  bool island = false;         // pinned or escaped: its block stays where it is
  bool placed = false;  // was moved to the low end, as a leaf that is written again and again
};

// What takes the budget, and books.
struct Charges {
  Bytes external{0};     // outside the pool
  Bytes kernel_held{0};  // in blocks of the pool that no value owns
  int kernel_blocks = 0;
  Bytes plain{0};        // of the live storages in the pool, evicted or not
  Bytes dead_leaves{0};  // in the pool
  int islands = 0;
  std::ptrdiff_t device_books = 0;
};

class Values {
 public:
  // All must outlive it. `now` is the engine's clock.
  Values(const Options& options, Device& device, Pool& pool, Lineage& lineage,
         Candidates& candidates, Verifier& verifier, Stats& stats, const Tick& now);

  // ---- what a value is ----
  // The one function that changes a value's residency.
  void transition(ValueId id, Residency to, BlockId block = {});
  // Cuts a value from its lineage. Its bytes, if any, are all there is of it from now on.
  void make_leaf(ValueId id);
  void count_dead_leaf(ValueId id);
  [[nodiscard]] Location location(ValueId id) const;

  // ---- pins ----
  void hard_pin(ValueId id);
  void hard_unpin(ValueId id) noexcept { hard_unpin(id, lineage_[id]); }
  void hard_unpin(ValueId id, Value& value) noexcept {
    if (--value.hard_pins == 0) {
      value.writing = false;
      candidates_.update(id, value);
      if (!value.storage.valid()) {
        settle(id);
      }
    }
  }
  void soft_pin(ValueId id);
  void soft_unpin(ValueId id);

  // ---- the end of a value ----
  // Frees what nobody needs, starting here, and what follows from that.
  void settle(ValueId id);
  // The same, at the next drain.
  void settle_later(ValueId id) { settle_work_.push_back(id); }
  void drain();
  // Its storage is gone, and nothing reads it.
  void end(ValueId id);

  // ---- who has which bytes ----
  Slab<HeldStorage, StorageId>& storages() { return storages_; }
  [[nodiscard]] const Slab<HeldStorage, StorageId>& storages() const { return storages_; }
  void set_island(HeldStorage& storage, bool on) {
    charges_.islands += static_cast<int>(on) - static_cast<int>(storage.island);
    storage.island = on;
  }
  // A new value becomes what the storage holds.
  ValueId pass_on(StorageId storage);
  // Gives a kernel-held block to an evicted value that is needed; frees it otherwise.
  void give_back(ValueId id, BlockId block);
  // Gives the block of `from`, which is evicted by it, to `to` by the same rule.
  void hand_over(ValueId from, ValueId to);
  // A version that a storage no longer has gets a copy of the bytes that it had.
  void give_copy(ValueId before, BlockId block);
  // Frees a block that a kernel held.
  void return_block(BlockId block);
  // Of the pool alone: its bytes are nobody's any more.
  void free_bytes(BlockId block);

  Charges& charges() { return charges_; }
  [[nodiscard]] bool settling() const { return settling_ || !settle_work_.empty(); }

 private:
  void settle_one(ValueId id);
  void cut(ValueId id);
  void remove_record(ValueId id);
  void release_payload(void* payload) noexcept;

  const Options& options_;
  Device& device_;
  Pool& pool_;
  Lineage& lineage_;
  Candidates& candidates_;
  Verifier& verifier_;
  Stats& stats_;
  const Tick& now_;
  Slab<HeldStorage, StorageId> storages_;
  Charges charges_;
  std::vector<ValueId> settle_work_;
  bool settling_ = false;
};

}  // namespace recoup::detail
