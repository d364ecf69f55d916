// TensorDevice: who keeps the storages that were made outside the pool, and how their end is
// noticed.
#include <utility>
#include <vector>

#include "csrc/engine/engine.h"
#include "csrc/torch/owners.h"
#include "csrc/torch/tensor_device.h"

namespace recoup::detail {
namespace {

// Whether the program has let it go.
bool is_dead(const StorageRecord& external) {
  return external.strong ? is_sole_owner(external.strong) : external.weak.expired();
}

}  // namespace

void TensorDevice::keep(void* external) noexcept {
  auto* const record = static_cast<StorageRecord*>(external);
  record->read = true;
  if (!record->strong) {
    record->strong = record->weak.lock();
  }
}

void TensorDevice::let_go(void* external) noexcept {
  auto* const record = static_cast<StorageRecord*>(external);
  record->read = false;
  release(*record);
}

bool TensorDevice::hold(void* external) {
  auto* const record = static_cast<StorageRecord*>(external);
  if (!record->strong) {
    record->strong = record->weak.lock();
    held_.push_back(record->self);
  }
  return static_cast<bool>(record->strong);
}

// When its last owner is this one, the engine is told first.
void TensorDevice::release(StorageRecord& record) noexcept {
  if (record.strong && record.id.valid() && is_sole_owner(record.strong)) {
    note_dead(record);
  } else {
    mutex_.graveyard().add(std::move(record.strong));
  }
}

void TensorDevice::collect() {
  for (const RecordId id : std::exchange(held_, {})) {
    if (records_.contains(id) && !records_[id].read) {
      release(records_[id]);
    }
  }
  while (!dead_.empty()) {
    const RecordId id = dead_.back();
    dead_.pop_back();
    if (records_.contains(id)) {
      report_dead(records_[id]);
    }
  }
}

// Calls forget, now or when lineage lets it go.
void TensorDevice::report_dead(StorageRecord& record) {
  if (record.id.valid() && is_dead(record)) {
    const StorageId storage = std::exchange(record.id, StorageId());
    record.let_go = engine_.current(storage);
    const bool freed = !record.read;
    const Bytes size = engine_.value(record.let_go).size;
    engine_.storage_died(storage);
    if (freed) {
      note_freed(size);
    }
  }
}

// Each is looked at about once for each 1,024 that are met.
void TensorDevice::sweep_before_meeting() {
  constexpr std::size_t kShare = 1024;
  if (++met_ > records_.external_count() / kShare) {
    sweep_external();
  }
}

void TensorDevice::sweep_external() {
  met_ = 0;
  std::vector<RecordId> dead;
  records_.for_each_external([&](const StorageRecord& record) {
    if (record.id.valid() && is_dead(record)) {
      dead.push_back(record.self);
    }
  });
  for (const RecordId id : dead) {
    if (records_.contains(id)) {
      report_dead(records_[id]);
    }
  }
}

// The C library also keeps a large block that lies between small ones, and cannot give it to an
// aligned block of the same size: a loop that makes and drops one tensor would take a block more
// each time.
void TensorDevice::note_freed(Bytes size) noexcept {
  constexpr Bytes kMost(64 << 20);
  freed_ += size;
  if (freed_ >= kMost) {
    freed_ = Bytes(0);
    taken_over();
  }
}

}  // namespace recoup::detail
