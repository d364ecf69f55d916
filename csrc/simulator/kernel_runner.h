// KernelRunner: repeats the allocations and frees of a trace's kernels on an engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/engine/attempt/op_kernel.h"
#include "csrc/engine/program/engine.h"
#include "recoup/trace.h"

namespace recoup::detail {

class KernelRunner {
 public:
  // `charge_window` charges overflow memory, and is called before each allocation of it. All must
  // outlive this object.
  KernelRunner(const Trace& trace, Engine& engine, std::function<void()> charge_window)
      : trace_(trace), engine_(engine), charge_window_(std::move(charge_window)) {}

  enum class Pass : std::uint8_t {
    kFirst,
    kReplay,  // without copies, and without allocations that the first run goes on holding
  };
  // Runs the kernel of an op. Allocations that it does not free are kept by number; see `take`.
  // Throws what the engine throws, and then keeps nothing. `attempt` is for the first run.
  void run(const TraceOp& op, Pass pass, const Attempt& attempt = {});
  // Whether the first allocation of `nbytes` by an op's kernel is a result. If not, its results do
  // not get the block of an operand: Note [Results in place].
  [[nodiscard]] bool makes_result_first(const TraceOp& op, Bytes nbytes) const;
  // Hands over allocation number `allocation` of the kernel that ran last. Invalid: it is in
  // overflow memory.
  [[nodiscard]] BlockId take(std::uint32_t allocation);
  // Whether an allocation of the last run is in overflow memory: any, or this one.
  [[nodiscard]] bool overflows() const { return !overflow_.empty(); }
  [[nodiscard]] bool overflows(std::uint32_t allocation) const {
    return std::binary_search(overflow_.begin(), overflow_.end(), allocation);
  }
  // The key of an allocation in overflow memory.
  [[nodiscard]] static OverflowKey key_of(std::uint32_t allocation) {
    return static_cast<OverflowKey>(allocation + std::uint64_t{1});
  }
  // Number of allocations that the last run made, also if it failed.
  [[nodiscard]] std::size_t made() const { return blocks_.size(); }
  // Frees what the last run kept, except what its kernel goes on holding.
  void free_results(const TraceOp& op);
  // Verifies that nothing is kept except what the kernel goes on holding.
  void check_end(const TraceOp& op) const;
  // Finds the allocations that the kernel of op number `op` goes on holding: the events right after
  // event number `event`, which is that of the op, name them.
  void find_held(std::uint32_t op, std::size_t event);

  // During its lifetime another kernel may run. Afterwards the runner has its earlier state again.
  class Nested {
   public:
    explicit Nested(KernelRunner& runner)
        : runner_(runner),
          outer_(std::exchange(runner.blocks_, {})),
          outer_overflow_(std::exchange(runner.overflow_, {})) {}
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() {
      runner_.blocks_ = std::move(outer_);
      runner_.overflow_ = std::move(outer_overflow_);
    }

   private:
    KernelRunner& runner_;
    std::vector<BlockId> outer_;
    std::vector<std::uint32_t> outer_overflow_;
  };

 private:
  [[nodiscard]] std::span<const std::uint32_t> held_by(const TraceOp& op) const;
  [[nodiscard]] BlockId allocate(Bytes size, const Attempt& attempt);
  void free(std::uint32_t allocation);

  const Trace& trace_;
  Engine& engine_;
  const std::function<void()> charge_window_;
  std::vector<BlockId> blocks_;  // allocations of the last run; invalid if freed, taken or overflow
  std::vector<std::uint32_t> overflow_;  // numbers of those in overflow memory, ascending
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> held_;  // by number of the op
};

}  // namespace recoup::detail
