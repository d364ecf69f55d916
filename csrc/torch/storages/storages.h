// The storages that a session knows: from PyTorch's to the engine's, and back.
#pragma once

#include <c10/core/StorageImpl.h>

#include <string>
#include <unordered_map>

#include "csrc/engine/program/engine.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storage_records.h"
#include "csrc/torch/storages/tensor_device.h"
#include "recoup/types.h"

namespace recoup::detail {

// Called under the engine's lock, but for `arm` and its like.
class Storages {
 public:
  // All of them outlive it.
  Storages(Engine& engine, TensorDevice& device, StorageRecords& records, EngineMutex& mutex)
      : engine_(engine), device_(device), records_(records), mutex_(mutex) {}
  Storages(const Storages&) = delete;
  Storages& operator=(const Storages&) = delete;

  // The storage of a tensor; registers it when it is new. Invalid for storages without bytes.
  // Throws OutOfBudget when it was made outside and there is no room to charge it.
  StorageId find(c10::StorageImpl& storage);
  // One that was made outside: nobody holds its address, so with a spill tier its memory may be
  // given back.
  void offer(c10::StorageImpl& storage);
  // Somebody may know its address by now; or that of any of them.
  void withdraw(const c10::StorageImpl& storage) { offered_.erase(&storage); }
  void withdraw_all();
  // The same as find, but registers nothing.
  StorageId find_known(const c10::StorageImpl& storage);
  // The kernel-held block that a storage lives in; invalid when it is none of ours or has an owner.
  [[nodiscard]] BlockId unowned_block(const c10::StorageImpl& storage) const;
  // A record for a storage that is about to be adopted; its id is not set.
  StorageRecord& add_record(c10::StorageImpl& storage) { return records_.add(storage); }
  [[nodiscard]] StorageRecord& record(StorageId id) const {
    return *static_cast<StorageRecord*>(engine_.handle(id));
  }

  // Charges bytes that are about to be made outside of the pool, and makes room for them; it stands
  // for them until release_reserved. Throws OutOfBudget.
  StorageId reserve(Bytes size);
  void release_reserved(StorageId reserved) { engine_.storage_died(reserved); }

  // Its bytes are gone, and so is it.
  void died(StorageRecord& record);
  // The same of an evicted one.
  void evicted_died(RecordId record) { died(records_[record]); }
  // The storage that has left the pool to this address dies, if there is one.
  void moved_out_died(const void* address);
  // Storages that are evicted say this from now on; it lives for ever.
  void tell_evicted(const std::string& message);
  // Evicted ones, which outlive the session, have lost their bytes: they say so.
  void disown_evicted();

  // Note [Unseen writers]: an armed storage tells when somebody takes its address to write to it.
  void arm(c10::StorageImpl& storage) const { arm_with(storage, device_.hooks().written); }
  // For one whose bytes nobody has defined yet: it is only pinned when that happens.
  void arm_undefined(c10::StorageImpl& storage) const {
    arm_with(storage, device_.hooks().defined);
  }
  void disarm(c10::StorageImpl& storage) const;

 private:
  void arm_with(c10::StorageImpl& storage, AccessHook hook) const;
  StorageId find_pooled(c10::StorageImpl& storage);
  StorageId find_external(c10::StorageImpl& storage);
  StorageId charge_external(StorageRecord& record, Bytes size, Engine::Charge charge);
  StorageId id_of(StorageRecord& external);
  void escape_owners(AddressRange range);
  [[nodiscard]] StorageRecord* live_owner_in(AddressRange range);
  [[nodiscard]] bool is_private_owner(const c10::StorageImpl& storage);
  [[nodiscard]] bool is_shown_by_slices_alone(const StorageRecord& owner,
                                              const c10::StorageImpl& slice) const;
  void forget_whole(StorageRecord& owner);
  void disown(const c10::StorageImpl& storage, StorageId id);
  // Whether a hook of ours may tell of accesses: PyTorch has hooks of its own on copy-on-write.
  [[nodiscard]] bool is_watchable(const c10::StorageImpl& storage) const;
  void escape_in_pool(const void* data);
  void escape_unless_it_has(StorageId storage);
  static void rebind(StorageRecord& record, c10::StorageImpl& storage);
  [[nodiscard]] StoragePtr lock_evicted(const StorageRecord& record) const;

  Engine& engine_;
  TensorDevice& device_;
  StorageRecords& records_;
  EngineMutex& mutex_;
  // Held weakly, so that no other storage comes to lie where one of them was.
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> offered_;
};

}  // namespace recoup::detail
