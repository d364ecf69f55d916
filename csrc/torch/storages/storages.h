// The storages that a session knows: mapping between PyTorch's and the engine's.
#pragma once

#include <c10/core/StorageImpl.h>

#include <string>
#include <unordered_map>

#include "csrc/engine/program/engine.h"
#include "csrc/engine/program/window_charge.h"
#include "csrc/torch/compat/storage_access.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storage_records.h"
#include "csrc/torch/storages/tensor_device.h"
#include "recoup/types.h"

namespace recoup::detail {

// All methods but `arm`, `arm_undefined`, `disarm` and `is_undefined` are called under the engine's
// lock.
class Storages {
 public:
  // The arguments must outlive this object.
  Storages(Engine& engine, TensorDevice& device, StorageRecords& records, EngineMutex& mutex)
      : engine_(engine), device_(device), records_(records), mutex_(mutex) {}
  Storages(const Storages&) = delete;
  Storages& operator=(const Storages&) = delete;

  // The storage of a tensor; registers a new one. Invalid for storages without bytes. Throws
  // OutOfBudget if the storage was made outside and there is no room to charge it.
  StorageId find(c10::StorageImpl& storage);
  // Offers a storage that was made outside and whose address no code holds: with a spill tier its
  // memory may be given back.
  void offer(c10::StorageImpl& storage);
  // To be called after all offers of a scope. Registers them if storages are imported by segments:
  // then the engine knows all storages of a segment.
  void end_offers();
  // Ends the offer of a storage, or of all, because code may know the address by now.
  void withdraw(const c10::StorageImpl& storage) { offered_.erase(&storage); }
  void withdraw_all();
  // Like find, but registers nothing.
  StorageId find_known(const c10::StorageImpl& storage);
  // The block of a storage in the pool that has no owner yet, but is held by a kernel. Invalid if
  // there is none.
  [[nodiscard]] BlockId unowned_block(const c10::StorageImpl& storage) const;
  // Adds a record for a storage that is about to be adopted; its id is not set.
  StorageRecord& add_record(c10::StorageImpl& storage) { return records_.add(storage); }
  // Adds a record for a result in overflow memory; then its id has been set.
  StorageRecord& add_overflow(c10::StorageImpl& storage);
  void overflow_is_known(StorageRecord& record);
  [[nodiscard]] StorageRecord& record(StorageId id) const {
    return *static_cast<StorageRecord*>(engine_.handle(id));
  }

  // Charges bytes that are about to be allocated outside of the pool, and makes room for them. The
  // returned placeholder is charged until release_reserved. Throws OutOfBudget.
  StorageId reserve(Bytes size, Engine::Charge charge = Engine::Charge::kNow);
  // Charges the resident part of overflow memory, in place of another size. Throws OutOfBudget.
  void charge_window(Bytes window);
  // Bytes that are charged for it.
  [[nodiscard]] Bytes window() const { return window_.size(); }
  void release_reserved(StorageId reserved) { engine_.storage_died(reserved); }

  // Ends a storage whose bytes are gone.
  void died(StorageRecord& record);
  // Ends an evicted storage.
  void evicted_died(RecordId record) { died(records_[record]); }
  // Ends the storage that has left the pool to this address, if there is one.
  void moved_out_died(const void* address);
  // Sets the message for accesses to evicted storages; it must never be destroyed.
  void tell_evicted(const std::string& message);
  // Marks evicted storages, which outlive the session, as lost: an access to them says so.
  void disown_evicted();

  // Note [Unseen writers]: an armed storage reports when code takes its address to write to it.
  void arm(c10::StorageImpl& storage) const { arm_with(storage, device_.hooks().written); }
  // For a storage whose bytes are still undefined: the report only pins it.
  void arm_undefined(c10::StorageImpl& storage) const {
    arm_with(storage, device_.hooks().defined);
  }
  void disarm(c10::StorageImpl& storage) const;
  // Whether no op and no pointer has written the storage since arm_undefined.
  [[nodiscard]] bool is_undefined(const c10::StorageImpl& storage) const {
    return access_hook(storage) == device_.hooks().defined;
  }

 private:
  void arm_with(c10::StorageImpl& storage, AccessHook hook) const;
  StorageId find_pooled(c10::StorageImpl& storage);
  StorageId find_external(c10::StorageImpl& storage);
  StorageId find_known_external(c10::StorageImpl& storage);
  // Who allocated the bytes of an external storage.
  enum class Origin : std::uint8_t {
    kScope,    // an allocator that recoup knows, in this scope or an earlier one
    kForeign,  // other code
    kView,     // other code, which lets other storages have them, too
  };
  [[nodiscard]] Origin origin_of(const c10::StorageImpl& storage);
  StorageId charge_external(StorageRecord& record, Bytes size, Engine::Charge charge,
                            SegmentId segment = {});
  StorageId id_of(StorageRecord& external);
  void escape_owners(AddressRange range);
  [[nodiscard]] StorageRecord* live_owner_in(AddressRange range);
  [[nodiscard]] bool is_private_owner(const c10::StorageImpl& storage);
  [[nodiscard]] bool is_shown_by_slices_alone(const StorageRecord& owner,
                                              const c10::StorageImpl& slice) const;
  void forget_whole(StorageRecord& owner);
  void disown(const c10::StorageImpl& storage, StorageId id);
  // Whether recoup may hook accesses: PyTorch has hooks of its own on copy-on-write storages.
  [[nodiscard]] bool is_watchable(const c10::StorageImpl& storage) const;
  void escape_in_pool(const void* data);
  void escape_unless_it_has(StorageId storage);
  static void rebind(StorageRecord& record, c10::StorageImpl& storage);
  [[nodiscard]] StoragePtr lock_evicted(const StorageRecord& record) const;

  Engine& engine_;
  TensorDevice& device_;
  StorageRecords& records_;
  EngineMutex& mutex_;
  struct Offered {
    // Held weakly, so that no other storage gets its address.
    c10::weak_intrusive_ptr<c10::StorageImpl> weak;
    std::size_t number;  // in the order of offers
  };
  WindowCharge window_;
  std::size_t offers_ = 0;  // number of all offers so far
  std::unordered_map<const c10::StorageImpl*, Offered> offered_;
};

}  // namespace recoup::detail
