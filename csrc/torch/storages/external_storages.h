// Ownership of storages that were made outside the pool, and detection of their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storage_records.h"
#include "recoup/types.h"

namespace recoup::detail {

class Engine;

// Returns free memory of the C library to the system.
void trim_heap() noexcept;

// Note [Who keeps an external storage]. All methods are called under the engine's lock.
class ExternalStorages {
 public:
  // The arguments must outlive this object. The engine may be constructed later.
  ExternalStorages(Engine& engine, EngineMutex& mutex, StorageRecords& records)
      : engine_(engine), mutex_(mutex), records_(records) {}
  ExternalStorages(const ExternalStorages&) = delete;
  ExternalStorages& operator=(const ExternalStorages&) = delete;

  // keep(): a record of lineage reads the storage from now on. let_go(): no record reads it any
  // more.
  static void keep(StorageRecord& record) noexcept;
  void let_go(StorageRecord& record) noexcept;
  // Keeps the storage until the next `collect`. False if the program has dropped it.
  [[nodiscard]] bool hold(StorageRecord& record);

  // Releases what was held during a request, and reports the storages that have died. Request calls
  // it last, if has_ended().
  void collect();
  [[nodiscard]] bool has_ended() const { return !held_.empty() || !dead_.empty(); }
  // Finds and reports all storages that have died.
  void sweep();
  // Watches a storage in overflow memory. sweep_overflow() reports those that have died. Request
  // calls it first.
  void watch_overflow(const StorageRecord& record) {
    overflow_.push_back({.record = record.self, .from = record.range.from});
  }
  void sweep_overflow() {
    if (!overflow_.empty()) [[unlikely]] {
      find_dead_overflow();
    }
  }
  // Called before another storage is charged, so that dead ones are no longer charged.
  void sweep_before_meeting();
  // Marks a dead storage for the next `collect`, which reports it.
  void note_dead(const StorageRecord& record) { dead_.push_back(record.self); }

 private:
  void release(StorageRecord& record) noexcept;
  void find_dead_overflow();
  void report_all();
  void report(StorageRecord& record);
  void note_freed(Bytes size) noexcept;

  Engine& engine_;
  EngineMutex& mutex_;
  StorageRecords& records_;
  std::vector<RecordId> held_;  // during a call into the engine
  std::vector<RecordId> dead_;  // to be reported
  // A storage in overflow memory. The record of its id may be that of another storage by now, which
  // has another address or none.
  struct Watched {
    RecordId record;
    std::uintptr_t from;
  };
  std::vector<Watched> overflow_;
  std::size_t met_ = 0;  // number of external storages met since the last sweep
  Bytes freed_{0};       // since the last trim_heap
};

}  // namespace recoup::detail
