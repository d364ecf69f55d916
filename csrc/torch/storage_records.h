// What is kept of each storage that the engine knows: the engine's "handle".
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

#include "csrc/base/flat_map.h"
#include "csrc/base/slab.h"
#include "recoup/types.h"

namespace recoup::detail {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;
using RecordId = Id<struct RecordTag>;

// Pool storages are held weakly (their deleter says when they die); external ones strongly, since
// lineage may need their bytes after the program let them go.
struct StorageRecord {
  c10::weak_intrusive_ptr<c10::StorageImpl> weak{StoragePtr()};
  StoragePtr strong;  // external only
  ValueId let_go;  // external only: what it held when the program let it go; then `id` is of none
  c10::StorageImpl* impl = nullptr;
  const void* data = nullptr;  // external only: where its bytes were when they were charged
  StorageId id;
  RecordId self;
};

// What an evicted storage has in the place of its bytes: numbers, for it may die while its session
// stops, and then nothing that it points to would be there.
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
  // With a weak reference to the storage; the caller says what it is.
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

  // External ones are found by the address of their storage.
  void index_external(const StorageRecord& record) {
    external_.insert(key_of(record.impl), record.self);
  }
  // Does nothing when another record is found there.
  void unindex_external(const StorageRecord& record) {
    if (external(record.impl) == &record) {
      external_.erase(key_of(record.impl));
    }
  }
  // Null: none.
  [[nodiscard]] StorageRecord* external(const c10::StorageImpl* storage) {
    const RecordId id = external_.get(key_of(storage));
    return id.valid() ? &records_[id] : nullptr;
  }

  // Calls function(record); it must neither add nor remove any.
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
};

}  // namespace recoup::detail
