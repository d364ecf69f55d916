#include "csrc/torch/session/tensor_memory.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/torch/backend/bypass.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/ops/compiled_frame.h"

namespace recoup::detail {
namespace {

// Size in bytes up to which an allocation outside of any kernel may be a number that the argument
// parser wraps into a tensor.
constexpr std::size_t kWrappedNumber = 16;

}  // namespace

bool TensorMemory::in_scope(std::size_t nbytes) const {
  if (Bypass::active()) {
    return false;
  }
  if (on_scope_thread()) {
    return !to_.device.device().is_cpu() || nbytes > kWrappedNumber || inside_op() ||
           Hook::fills_by_pointer();
  }
  // Kernels also allocate on OpenMP workers, which are not threads of the scope.
  return to_.device.in_kernel() && at::in_parallel_region();
}

BlockId TensorMemory::take_block(std::size_t nbytes) {
  const BlockId block = to_.engine.allocate(Bytes(static_cast<std::int64_t>(nbytes)));
  if (block.index() >= block_serials_.size()) {
    block_serials_.resize(block.index() + std::size_t{1024}, 0);
  }
  block_serials_[block.index()] = serial_;
  count_held(nbytes);
  return block;
}

void TensorMemory::count_held(std::size_t nbytes) {
  held_ += static_cast<std::int64_t>(nbytes);
  most_held_ = std::max(most_held_, held_);
}

void TensorMemory::free_overflow(OverflowKey key, Bytes size, const EngineLock&) {
  held_ -= to_.engine.pool().round_up(size).count();
  to_.engine.op().free_overflow(key);
}

BlockId TensorMemory::block_at(const void* pointer) const {
  const auto block = to_.engine.pool().find(to_.device.arena().offset(pointer));
  RECOUP_CHECK(block.has_value(), "memory that is not allocated is freed, or used on a stream");
  return *block;
}

template <class NoRoom>
void TensorMemory::throw_no_room(const OutOfBudget& error) const {
  if (!inside_op() && !at::in_parallel_region()) {
    throw_out_of_budget(error.report());  // outside of ops, whose handler would convert it
  }
  const EngineLock lock(to_.mutex);
  if (CaughtFailure* const failure = CaughtFailure::of_this_thread()) {
    failure->note(error.report(), &Settings::current(to_.device.device().type()));
  } else {
    to_.device.failure_of_workers().note(error.report(), nullptr);
  }
  if (CompiledFrame* const frame = CompiledFrame::current()) {
    frame->note_failure(PoolOutOfMemory(error.report(), to_.session));
  }
  throw NoRoom(error.report(), to_.session);
}

// Objects that the engine has released die when its lock is released, and may free memory of the
// pool: a slice is an external storage that owns a storage of the pool. So a failed allocation is
// tried once more if that freed memory.
template <class Take>
void* TensorMemory::take_in_turns(Take&& take) {
  to_.delay.wait();
  for (bool again = true;; again = false) {
    Bytes charged{0};
    try {
      const EngineLock lock(to_.mutex);
      try {
        return take(lock);
      } catch (const OutOfBudget&) {
        charged = to_.engine.charged();
        throw;
      }
    } catch (const OutOfBudget&) {
      const EngineLock lock(to_.mutex);
      if (!again || to_.engine.charged() >= charged) {
        throw;
      }
    }
  }
}

template <class NoRoom, class Take>
void* TensorMemory::allocate_in_turns(Take&& take) {
  try {
    return take_in_turns(std::forward<Take>(take));
  } catch (const OutOfBudget& error) {
    throw_no_room<NoRoom>(error);
  }
}

c10::DataPtr TensorMemory::from_pool(std::size_t nbytes) {
  void* const pointer = take_in_turns([&](const EngineLock&) {
    return to_.device.arena().at(to_.engine.pool().offset(take_block(nbytes)));
  });
  return {pointer, pointer, to_.device.hooks().pool, to_.device.device()};
}

c10::DataPtr TensorMemory::allocate(std::size_t nbytes) {
  if (nbytes == 0) {
    return to_.device.no_bytes();
  }
  try {
    const OverflowResults* const overflow = OverflowResults::current();
    if (overflow == nullptr) [[likely]] {
      return from_pool(nbytes);
    }
    return overflow->attempt().place(
        to_.engine.pool().round_up(Bytes(static_cast<std::int64_t>(nbytes))),
        [&] { return from_pool(nbytes); }, [&] { return from_overflow(*overflow, nbytes); });
  } catch (const OutOfBudget& error) {
    throw_no_room<PoolOutOfMemory>(error);
  }
}

// If overflow memory fails, the memory has to be the pool's.
c10::DataPtr TensorMemory::from_overflow(const OverflowResults& overflow, std::size_t nbytes) {
  std::string reason;
  try {
    c10::DataPtr memory = overflow.allocate(nbytes);
    const EngineLock lock(to_.mutex);
    to_.engine.op().overflow(overflow_key(memory.get()), Bytes(static_cast<std::int64_t>(nbytes)));
    count_held(nbytes);  // a kernel is recorded alike, whether its memory overflows or not
    return memory;
  } catch (const OutOfBudget&) {
    throw;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  try {
    return from_pool(nbytes);
  } catch (const OutOfBudget& error) {
    OutOfBudgetReport report = error.report();
    report.reason = std::move(reason);
    throw OutOfBudget(std::move(report));
  }
}

void* TensorMemory::allocate(std::size_t nbytes, cuda::Stream stream) {
  return allocate_in_turns<KernelOutOfMemory>([&](const EngineLock& lock) {
    if (capturing() && !to_.device.backend().in_capture(stream)) [[unlikely]] {
      return take_spare(nbytes);
    }
    const BlockId block = take_block(nbytes);
    const Bytes size = to_.engine.pool().size(block);
    void* const pointer = to_.device.arena().at(to_.engine.pool().offset(block));
    publish_use(lock);
    try {
      to_.device.backend().take(pointer, size, stream);
    } catch (...) {
      held_ -= size.count();
      to_.engine.free(block);
      throw;
    }
    return pointer;
  });
}

// A generator allocates its seed and offset on its own stream when it first draws in a capture. No
// work has used a spare since the host waited for the device, so no stream must wait.
void* TensorMemory::take_spare(std::size_t nbytes) {
  if (spare_.empty() ||
      Bytes(static_cast<std::int64_t>(nbytes)) > to_.engine.pool().round_up(Bytes(1))) {
    throw std::runtime_error(
        "recoup: memory is requested on a stream that is not captured, while a CUDA graph is "
        "captured in a budget: request it before the capture, or on the captured stream");
  }
  const BlockId block = spare_.back();
  spare_.pop_back();
  void* const pointer = to_.device.arena().at(to_.engine.pool().offset(block));
  given_.push_back({.address = pointer, .size = to_.engine.pool().size(block)});
  return pointer;
}

void TensorMemory::begin_capture(const EngineLock&) {
  constexpr int kSpares = 16;  // two for each generator
  for (int i = 0; i < kSpares; ++i) {
    spare_.push_back(to_.engine.allocate(Bytes(1)));
  }
  capturing_ = true;
}

std::vector<GraphBlock> TensorMemory::end_capture(const EngineLock&) {
  capturing_ = false;
  for (const BlockId block : std::exchange(spare_, {})) {
    to_.engine.free(block);
  }
  return std::exchange(given_, {});
}

void TensorMemory::free(void* pointer) {
  to_.delay.wait();
  const EngineLock lock(to_.mutex);
  if (!graph_blocks_.empty() && graph_blocks_.pass_on(pointer)) [[unlikely]] {
    return;
  }
  const BlockId block = block_at(pointer);
  if (const StorageId storage = to_.engine.storage_in(block); storage.valid()) {
    to_.storages.died(to_.storages.record(storage));
  } else {
    held_ -= to_.engine.pool().size(block).count();
    to_.engine.free(block);
  }
  publish_use(lock);
}

// PyTorch's autograd records a use on a stream before that stream joins a capture. Its ops in the
// capture are uses of their own, and the host waits for all others when the capture ends.
void TensorMemory::record_stream(void* pointer, cuda::Stream stream) {
  const EngineLock lock(to_.mutex);
  if (capturing() && !to_.device.backend().in_capture(stream)) {
    return;
  }
  to_.device.backend().use(pointer, to_.engine.pool().size(block_at(pointer)), stream);
}

void* TensorMemory::allocate_aside(Bytes size, const EngineLock&) {
  return to_.device.arena().at(to_.engine.pool().offset(to_.engine.allocate(size)));
}

void TensorMemory::free_aside(const void* memory, const EngineLock&) {
  to_.engine.free(block_at(memory));
}

void TensorMemory::publish_use(const EngineLock&) {
  if (!to_.device.can().reports_use) {
    return;
  }
  used_ = (to_.engine.charged() - to_.engine.outside()).count();
  reserved_ = to_.device.arena().backed().count();
}

}  // namespace recoup::detail
