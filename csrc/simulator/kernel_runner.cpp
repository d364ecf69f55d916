#include "csrc/simulator/kernel_runner.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

// Whether ascending numbers contain a number. Binary search, because a hostile trace may have a
// million of them for one op.
bool contains(std::span<const std::uint32_t> numbers, std::size_t number) {
  return std::binary_search(numbers.begin(), numbers.end(), number);
}

}  // namespace

std::span<const std::uint32_t> KernelRunner::held_by(const TraceOp& op) const {
  if (held_.empty()) {
    return {};
  }
  const auto found = held_.find(static_cast<std::uint32_t>(&op - trace_.ops.data()));
  return found == held_.end() ? std::span<const std::uint32_t>() : found->second;
}

void KernelRunner::find_held(std::uint32_t op, std::size_t event) {
  std::vector<std::uint32_t> held;
  for (std::size_t at = event + 1; at < trace_.events.size(); ++at) {
    const TraceEvent& next = trace_.events[at];
    if (next.kind != TraceEvent::Kind::kAllocate || next.index == 0) {
      break;
    }
    held.push_back(next.index - 1);
  }
  if (!held.empty()) {
    std::sort(held.begin(), held.end());
    held_[op] = std::move(held);
  }
}

// Invalid: in overflow memory.
BlockId KernelRunner::allocate(Bytes size, const Attempt& attempt) {
  return attempt.place(
      engine_.pool().round_up(size), [&] { return engine_.allocate(size); },
      [&] {
        charge_window_();
        const auto number = static_cast<std::uint32_t>(blocks_.size());
        engine_.op().overflow(key_of(number), size);
        overflow_.push_back(number);
        return BlockId();
      });
}

void KernelRunner::free(std::uint32_t allocation) {
  if (overflows(allocation)) {
    engine_.op().free_overflow(key_of(allocation));
  } else {
    engine_.free(take(allocation));
  }
}

void KernelRunner::run(const TraceOp& op, Pass pass, const Attempt& attempt) {
  const std::span<const std::uint32_t> held = held_by(op);
  const auto left_out = [&](std::size_t allocation) {
    return pass == Pass::kReplay && (allocation < op.copies || contains(held, allocation));
  };
  blocks_.clear();
  overflow_.clear();
  try {
    for (const KernelStep& step : trace_.kernels[op.kernel]) {
      if (step.kind == KernelStep::Kind::kAllocate) {
        const bool is_copy = blocks_.size() < op.copies;
        blocks_.push_back(left_out(blocks_.size())
                              ? BlockId()
                              : allocate(step.size, is_copy ? Attempt() : attempt));
      } else if (!left_out(step.index) && !contains(held, step.index)) {
        free(step.index);
      }
    }
  } catch (...) {
    for (BlockId& block : blocks_) {
      if (block.valid()) {
        engine_.free(std::exchange(block, BlockId()));
      }
    }
    throw;
  }
}

bool KernelRunner::makes_result_first(const TraceOp& op, Bytes nbytes) const {
  std::uint32_t allocation = 0;
  for (const KernelStep& step : trace_.kernels[op.kernel]) {
    if (step.kind == KernelStep::Kind::kAllocate) {
      if (step.size == nbytes) {
        const std::span<const TraceFresh> fresh = trace_.fresh_of(op);
        return std::any_of(fresh.begin(), fresh.end(), [allocation](const TraceFresh& each) {
          return each.allocation == allocation;
        });
      }
      ++allocation;
    }
  }
  return false;
}

BlockId KernelRunner::take(std::uint32_t allocation) {
  return std::exchange(blocks_[allocation], BlockId());
}

void KernelRunner::free_results(const TraceOp& op) {
  const std::span<const std::uint32_t> held = held_by(op);
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].valid() && !contains(held, i)) {
      engine_.free(take(i));
    }
  }
}

void KernelRunner::check_end(const TraceOp& op) const {
  const auto kept = static_cast<std::size_t>(
      std::count_if(blocks_.begin(), blocks_.end(), [](BlockId block) { return block.valid(); }));
  const std::span<const std::uint32_t> held = held_by(op);
  const auto in_pool = static_cast<std::size_t>(std::count_if(
      held.begin(), held.end(), [this](std::uint32_t each) { return !overflows(each); }));
  RECOUP_CHECK(kept == in_pool, "a kernel holds what it neither returns nor keeps");
}

}  // namespace recoup::detail
