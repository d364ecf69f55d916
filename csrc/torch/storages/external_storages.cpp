#include "csrc/torch/storages/external_storages.h"

#include <malloc.h>

#include <utility>

#include "csrc/engine/program/engine.h"
#include "csrc/torch/storages/owners.h"

namespace recoup::detail {
namespace {

// Whether the program has dropped the storage.
bool is_dead(const StorageRecord& external) {
  return external.strong ? is_sole_owner(external.strong) : external.weak.expired();
}

}  // namespace

// The C library keeps small freed blocks.
void trim_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void ExternalStorages::keep(StorageRecord& record) noexcept {
  record.read = true;
  if (!record.strong) {
    record.strong = record.weak.lock();
  }
}

void ExternalStorages::let_go(StorageRecord& record) noexcept {
  record.read = false;
  release(record);
}

bool ExternalStorages::hold(StorageRecord& record) {
  if (!record.strong) {
    record.strong = record.weak.lock();
    held_.push_back(record.self);
  }
  return static_cast<bool>(record.strong);
}

// If the record is the last owner, the storage is reported to the engine before it is freed.
void ExternalStorages::release(StorageRecord& record) noexcept {
  if (record.strong && record.id.valid() && is_sole_owner(record.strong)) {
    note_dead(record);
  } else {
    mutex_.graveyard().add(std::move(record.strong));
  }
}

void ExternalStorages::collect() {
  for (const RecordId id : std::exchange(held_, {})) {
    if (records_.contains(id) && !records_[id].read) {
      release(records_[id]);
    }
  }
  report_all();
}

void ExternalStorages::sweep() {
  met_ = 0;
  records_.for_each_external([this](const StorageRecord& record) {
    if (record.id.valid() && is_dead(record)) {
      note_dead(record);
    }
  });
  report_all();
}

// Inspects each storage about once for every 1,024 that are met.
void ExternalStorages::sweep_before_meeting() {
  constexpr std::size_t kShare = 1024;
  if (++met_ > records_.external_count() / kShare) {
    sweep();
  }
}

void ExternalStorages::find_dead_overflow() {
  std::erase_if(overflow_, [this](const Watched& each) {
    if (!records_.contains(each.record)) {
      return true;
    }
    const StorageRecord& record = records_[each.record];
    // A record without an id was reported, but the program may find its storage again.
    if (record.range.from == each.from && record.id.valid() && is_dead(record)) {
      note_dead(record);
    }
    return record.range.from != each.from;
  });
  report_all();
}

void ExternalStorages::report_all() {
  while (!dead_.empty()) {
    const RecordId id = dead_.back();
    dead_.pop_back();
    if (records_.contains(id)) {
      report(records_[id]);
    }
  }
}

// The engine calls `forget`, at once or when no lineage needs the value any more.
void ExternalStorages::report(StorageRecord& record) {
  if (!record.id.valid() || !is_dead(record)) {
    return;
  }
  const StorageId storage = std::exchange(record.id, StorageId());
  record.let_go = engine_.current(storage);
  const bool freed = !record.read;
  const Bytes size = engine_.value(record.let_go).size;
  engine_.storage_died(storage);
  if (freed) {
    note_freed(size);
  }
}

// The C library also keeps a large block that lies between small ones, and cannot reuse it for an
// aligned block of the same size. A loop that makes and drops one tensor would take one more block
// in each iteration.
void ExternalStorages::note_freed(Bytes size) noexcept {
  constexpr Bytes kMost(64 << 20);
  freed_ += size;
  if (freed_ >= kMost) {
    freed_ = Bytes(0);
    trim_heap();
  }
}

}  // namespace recoup::detail
