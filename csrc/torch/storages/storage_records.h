// The record of each storage that the engine knows: the engine's "handle".
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

#include "csrc/base/address_map.h"
#include "csrc/base/flat_map.h"
#include "csrc/base/slab.h"
#include "recoup/types.h"

namespace recoup::detail {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;
using RecordId = Id<struct RecordTag>;

// Note [Who keeps an external storage]
// Storages are held weakly. A storage in the pool reports its death through its deleter. An
// external one dies as it would without recoup, at once, unless a record of lineage reads it. Then
// it is held strongly, and counts as dropped by the program when no other owner is left.
struct StorageRecord {
  c10::weak_intrusive_ptr<c10::StorageImpl> weak{StoragePtr()};
  StoragePtr strong;  // external only: while a record reads it or the engine uses it
  bool read = false;  // external only: a record of lineage reads it
  ValueId let_go;     // external only: its value when the program dropped it; `id` is then invalid
  c10::StorageImpl* impl = nullptr;
  AddressRange range;  // external only: address range of its bytes when they were charged
  bool view = false;   // external only: of memory that another storage may own
  StorageId id;
  RecordId self;
};

// Stored in an evicted storage in place of its bytes. It holds numbers, not pointers: the storage
// may die while its session ends.
struct EvictedContext {
  std::uint32_t session = 0;
  RecordId record;

  [[nodiscard]] void* pack() const {
    return reinterpret_cast<void*>((std::uintptr_t{session} << 32) | record.index());
  }
  [[nodiscard]] static EvictedContext unpack(const void* context) {
    const auto bits = reinterpret_cast<std::uintptr_t>(context);
    return {.session = static_cast<std::uint32_t>(bits >> 32),
            .record = RecordId(static_cast<std::uint32_t>(bits))};
  }
};

// The records of one session. References stay valid while a record lives.
class StorageRecords {
 public:
  // Adds a record with a weak reference to the storage; the caller sets the other fields.
  StorageRecord& add(c10::StorageImpl& storage) {
    const auto [id, record] = records_.emplace();
    c10::raw::weak_intrusive_ptr::incref(&storage);
    record.weak = c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(&storage);
    record.impl = &storage;
    record.self = id;
    return record;
  }
  void remove(const StorageRecord& record) { records_.remove(record.self); }
  [[nodiscard]] StorageRecord& operator[](RecordId id) { return records_[id]; }

  // External storages are found by the address of their StorageImpl and by the range of their
  // bytes.
  void index_external(const StorageRecord& record) {
    external_.insert(key_of(record.impl), record.self);
    if (record.view) {
      memory_.add_view(record.range);
    } else {
      memory_.add_owner(record.range, record.self);
    }
  }
  // Does nothing if another record has taken its place.
  void unindex_external(const StorageRecord& record) {
    if (external(record.impl) != &record) {
      return;
    }
    external_.erase(key_of(record.impl));
    if (record.view) {
      memory_.remove_view(record.range);
    } else {
      memory_.remove_owner(record.range, record.self);
    }
  }
  // Null if there is none.
  [[nodiscard]] StorageRecord* external(const c10::StorageImpl* storage) {
    const RecordId id = external_.get(key_of(storage));
    return id.valid() ? &records_[id] : nullptr;
  }

  // An external storage that owns bytes in the range; null if there is none.
  [[nodiscard]] StorageRecord* owner_in(AddressRange range) {
    const RecordId id = memory_.owner_in(range);
    return id.valid() ? &records_[id] : nullptr;
  }
  // Removes the storage from the results of owner_in().
  void unwatch_owner(const StorageRecord& record) {
    memory_.remove_owner(record.range, record.self);
  }
  // Code that no record stands for may access the range, until it is removed as often.
  void add_view(AddressRange range) { memory_.add_view(range); }
  void remove_view(AddressRange range) { memory_.remove_view(range); }
  // Whether a view shows a part of the range.
  [[nodiscard]] bool has_view_in(AddressRange range) const { return memory_.has_view_in(range); }

  [[nodiscard]] bool contains(RecordId id) const { return records_.contains(id); }
  [[nodiscard]] std::size_t external_count() const { return external_.size(); }

  // Calls function(record), which must neither add nor remove records.
  template <class Function>
  void for_each(Function&& function) const {
    records_.for_each([&](RecordId, const StorageRecord& record) { function(record); });
  }
  template <class Function>
  void for_each_external(Function&& function) const {
    external_.for_each([&](RecordId id) { function(records_[id]); });
  }

 private:
  static std::int64_t key_of(const c10::StorageImpl* storage) {
    return reinterpret_cast<std::int64_t>(storage);
  }

  Slab<StorageRecord, RecordId> records_;
  FlatMap<RecordId> external_;
  AddressMap<RecordId> memory_;
};

}  // namespace recoup::detail
