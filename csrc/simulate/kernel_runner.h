// What the kernels of a trace do to the memory of an engine.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "recoup/trace.h"

namespace recoup::detail {

class KernelRunner {
 public:
  // Both must outlive it.
  KernelRunner(const Trace& trace, Engine& engine) : trace_(trace), engine_(engine) {}

  enum class Pass : std::uint8_t {
    kFirst,
    kReplay,  // makes no copies, and no allocation that the first run goes on holding
  };
  // Runs the kernel of an op. What it allocates and does not free is kept by number; see `take`.
  // Throws what the engine throws, and then nothing is kept.
  void run(const TraceOp& op, Pass pass);
  // Gives away allocation number `allocation` of the kernel that ran last.
  [[nodiscard]] BlockId take(std::uint32_t allocation);
  // The number of allocations that the last run made, also where it failed.
  [[nodiscard]] std::size_t made() const { return blocks_.size(); }
  // Frees what the last run kept, but for what its kernel goes on holding.
  void free_results(const TraceOp& op);
  // Nothing is kept but what the kernel goes on holding.
  void check_end(const TraceOp& op) const;
  // Looks for the allocations that the kernel of op number `op` goes on holding: the events right
  // after its own, which has number `event`, name them.
  void find_held(std::uint32_t op, std::size_t event);

  // While it lives, another kernel may run; then the runner keeps again what it kept before.
  class Nested {
   public:
    explicit Nested(KernelRunner& runner)
        : runner_(runner), outer_(std::exchange(runner.blocks_, {})) {}
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { runner_.blocks_ = std::move(outer_); }

   private:
    KernelRunner& runner_;
    std::vector<BlockId> outer_;
  };

 private:
  [[nodiscard]] std::span<const std::uint32_t> held_by(const TraceOp& op) const;

  const Trace& trace_;
  Engine& engine_;
  std::vector<BlockId> blocks_;  // what the last run made; invalid where it was freed or taken
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> held_;  // by number of the op
};

}  // namespace recoup::detail
