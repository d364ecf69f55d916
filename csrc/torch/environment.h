// The numeric state of the process that an op ran in, as far as it can change its bits.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace recoup::detail {

struct Environment {
  std::int16_t threads = 0;
  bool grad_mode = false;
  bool deterministic = false;
  bool fill_uninitialized = false;
  bool mkldnn = false;
  bool flush_denormal = false;
  std::int8_t matmul_precision = kAnyPrecision;
  std::int32_t gpu = kNoGpu;  // what only GPUs look at: see GpuSwitches

  static constexpr std::int8_t kAnyPrecision = -1;
  static constexpr std::int32_t kNoGpu = -1;
  // With `precision` off, the float32 matmul precision, which is slow to ask for, is left open; so
  // is what only GPUs look at with `on_gpu` off.
  static Environment current(bool precision, bool on_gpu);
  friend bool operator==(const Environment&, const Environment&) = default;
};

// Puts an environment in place and the former one back. Costs nothing where they are equal.
class EnvironmentGuard {
 public:
  explicit EnvironmentGuard(const Environment& wanted);
  ~EnvironmentGuard();
  EnvironmentGuard(const EnvironmentGuard&) = delete;
  EnvironmentGuard& operator=(const EnvironmentGuard&) = delete;

 private:
  Environment before_;
  Environment wanted_;
};

// The state of a generator at one moment: of the CPU's all of its numbers, of a GPU's its seed and
// its offset, from which it computes them. Shared: several ops may have started from the same one.
using GeneratorState = std::shared_ptr<const std::vector<std::uint8_t>>;

// The generator that an op on the device would draw from, given its arguments; none: not one that
// can be restored.
std::optional<at::Generator> generator_of(c10::ArrayRef<c10::IValue> arguments, c10::Device device);

// Remembers the last state, so that equal ones are stored once.
class GeneratorStates {
 public:
  GeneratorState save(at::Generator generator);

 private:
  GeneratorState last_;
};

// Rewinds a generator and, at the end, puts it back to where the program has it.
class GeneratorGuard {
 public:
  GeneratorGuard(at::Generator generator, const GeneratorState& state);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;  // on the CPU
  std::array<std::uint64_t, 2> before_on_gpu_{};
};

}  // namespace recoup::detail
