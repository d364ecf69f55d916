// Tensors that collectives use after their ops have returned.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "csrc/engine/state/values.h"
#include "csrc/torch/ops/payload.h"

namespace recoup::detail {

// Note [In collective]
// An op of c10d returns before its collective has finished. Threads of the process group go on
// reading and writing its tensors by pointer. The op returns a c10d::Work that tells when they have
// finished. Until then the op's tensors, and all that ops within its kernel read and made, are
// pinned: they are neither moved nor evicted. Afterwards they are ordinary. What the op read is
// recomputable as before. What it wrote is a non-recomputable version, because only all ranks
// together could run the collective again.
//
// A collective has finished when its Work says so, when Python's Work.wait has returned, or when
// wait_tensor has taken the Work from the registry of functional collectives: some works never
// report completion (those of gloo's reduce_scatter). For a Work that the program drops without
// waiting, the end is unknown, so its pins are kept for as long as the tensors live.
using Work = c10::intrusive_ptr<torch::CustomClassHolder>;  // in fact a c10d::Work
using WorkId = const c10::intrusive_ptr_target*;            // only compared, never dereferenced

struct PendingCollective {
  Work work;
  std::vector<PinTicket> pins;
  std::thread::id thread;  // the one that called the op
};

// All methods but `any` must be called under the engine's lock.
class InFlight {
 public:
  [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

  void add(PendingCollective collective);
  [[nodiscard]] std::vector<Work> works() const;
  // Whether threads of a process group may be using the storage. For a call that took the storage's
  // address on another thread than the one that started the collective.
  [[nodiscard]] bool used_by_others(const PinTicket& storage) const;
  // The works that use the storage and that have another owner.
  [[nodiscard]] std::vector<WorkId> waited_for(const PinTicket& storage) const;
  // Removes and returns the pending collectives among `works` whose Work has no other owner.
  [[nodiscard]] std::vector<PendingCollective> take_dropped(std::span<const WorkId> works);
  // Removes and returns those of `works`. The result must not be destroyed under the lock.
  [[nodiscard]] std::vector<PendingCollective> take(std::span<const WorkId> works);
  [[nodiscard]] std::vector<PendingCollective> take_all();
  // Drops everything in the child of a fork without running destructors: the child has no threads
  // of a process group, and their locks may be held.
  void leave_to_parent();

 private:
  template <class Wanted>
  std::vector<PendingCollective> take_if(Wanted&& wanted);

  std::vector<PendingCollective> pending_;
  std::atomic<int> count_{0};
};

// Which works have ended.
struct Ended {
  std::vector<WorkId> finished;
  std::vector<WorkId> dropped;  // unfinished, and owned only by InFlight and by `works`
};
// Called without the engine's lock: a Work may be implemented in Python.
[[nodiscard]] Ended ended_among(std::span<const Work> works);

// The Work among the results of an op; null if there is none or an empty one.
[[nodiscard]] Work work_among(Arguments results);

}  // namespace recoup::detail
