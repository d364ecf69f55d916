#include "csrc/torch/gpu/gpu_scope.h"

#include <thread>
#include <utility>

#include "csrc/base/at_end.h"
#include "csrc/base/check.h"

namespace recoup::detail {

GpuScope::GpuScope(ProgramMemory& live, const Arena& arena)
    : begin_(arena.at(Bytes(0))), end_(arena.at(arena.size())), live_(&live) {}

// Freeing may free more, through objects that die with a storage: so calls are counted, not locked.
template <class Act>
bool GpuScope::with_live(Act&& act) const {
  ++inside_;
  const AtEnd left([this] { --inside_; });
  ProgramMemory* const live = live_;
  if (live != nullptr) {
    act(*live);
  }
  return live != nullptr;
}

bool GpuScope::wants(Bytes size) const {
  bool wanted = false;
  with_live([&](const ProgramMemory& live) {
    wanted = live.in_scope(static_cast<std::size_t>(size.count()));
  });
  return wanted;
}

void* GpuScope::allocate(Bytes size, cuda::Stream stream) {
  // Only threads of the scope allocate, and the scope is not left meanwhile.
  ProgramMemory* const live = live_;
  RECOUP_CHECK(live != nullptr);
  return live->allocate(static_cast<std::size_t>(size.count()), stream);
}

bool GpuScope::empty() const {
  const std::lock_guard lock(mutex_);
  return live_ == nullptr && retired_ && retired_->empty();
}

// Asks the live session, or the retired arena after its end.
Bytes GpuScope::count(Bytes (ProgramMemory::*of_live)() const,
                      Bytes (RetiredArena::*of_rest)() const) const {
  Bytes bytes;
  if (!with_live([&](const ProgramMemory& live) { bytes = (live.*of_live)(); })) {
    const std::lock_guard lock(mutex_);
    bytes = retired_ ? ((*retired_).*of_rest)() : Bytes(0);
  }
  return bytes;
}

Bytes GpuScope::reserved() const { return count(&ProgramMemory::reserved, &RetiredArena::backed); }

Bytes GpuScope::used() const { return count(&ProgramMemory::used, &RetiredArena::used); }

std::optional<OutsideSegment> GpuScope::left_segment() const {
  const std::lock_guard lock(mutex_);
  if (live_ != nullptr || !retired_) {
    return std::nullopt;
  }
  return OutsideSegment{
      .base = begin_,
      .extent = Bytes(static_cast<const char*>(end_) - static_cast<const char*>(begin_)),
      .size = retired_->backed(),
      .in_use = retired_->in_use()};
}

bool GpuScope::capturing() const {
  bool is_capturing = false;
  with_live([&](const ProgramMemory& live) { is_capturing = live.capturing(); });
  return is_capturing;
}

void GpuScope::free(void* memory) {
  if (with_live([memory](ProgramMemory& live) { live.free(memory); })) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (retired_) {
    retired_->release(memory);
  } else {
    freed_early_.push_back(memory);
  }
}

void GpuScope::record_stream(void* memory, cuda::Stream stream) {
  // Memory of an ended session is not reused before the device has finished all of its work.
  with_live([&](ProgramMemory& live) { live.record_stream(memory, stream); });
}

void GpuScope::close() {
  live_ = nullptr;
  while (inside_ > 0) {
    std::this_thread::yield();
  }
}

void GpuScope::retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks) {
  const std::lock_guard lock(mutex_);
  retired_.emplace(std::move(arena), blocks);
  for (void* const memory : freed_early_) {
    retired_->release(memory);
  }
  freed_early_.clear();
}

}  // namespace recoup::detail
