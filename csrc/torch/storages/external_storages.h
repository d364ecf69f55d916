// Who keeps the storages that were made outside the pool, and how their end is noticed.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storage_records.h"
#include "recoup/types.h"

namespace recoup::detail {

class Engine;

// The C library gives memory that it has free back to the system.
void trim_heap() noexcept;

// Note [Who keeps an external storage]. Called under the engine's lock.
class ExternalStorages {
 public:
  // All of them outlive it. The engine may be one that is made later.
  ExternalStorages(Engine& engine, EngineMutex& mutex, StorageRecords& records)
      : engine_(engine), mutex_(mutex), records_(records) {}
  ExternalStorages(const ExternalStorages&) = delete;
  ExternalStorages& operator=(const ExternalStorages&) = delete;

  // A record of lineage reads the storage from now on; no record reads it any more.
  static void keep(StorageRecord& record) noexcept;
  void let_go(StorageRecord& record) noexcept;
  // Keeps the storage until the next `collect`. False: the program has let it go.
  [[nodiscard]] bool hold(StorageRecord& record);

  // Lets go of what was held for a call into the engine, and reports what has died by now. At the
  // end of such a call.
  void collect();
  // Reports all that have died.
  void sweep();
  // Before another one is charged: those that have died are counted no more.
  void sweep_before_meeting();
  // It has died, and is to be reported by `collect`.
  void note_dead(const StorageRecord& record) { dead_.push_back(record.self); }

 private:
  void release(StorageRecord& record) noexcept;
  void report_all();
  void report(StorageRecord& record);
  void note_freed(Bytes size) noexcept;

  Engine& engine_;
  EngineMutex& mutex_;
  StorageRecords& records_;
  std::vector<RecordId> held_;  // for a call into the engine
  std::vector<RecordId> dead_;  // to be reported
  std::size_t met_ = 0;         // since the last sweep
  Bytes freed_{0};              // since the last trim_heap
};

}  // namespace recoup::detail
