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
  std::int8_t matmul_precision = kAnyPrecision;  // of the CPU and of GPUs
  std::int8_t autocast = kNoAutocast;  // what ops within the op are cast to, as a ScalarType
  std::int32_t gpu = kNoGpu;           // what only GPUs look at: see GpuSwitches

  static constexpr std::int8_t kAnyPrecision = -1;
  static constexpr std::int32_t kNoGpu = -1;
  static constexpr std::int8_t kNoAutocast = -1;
  // With `precision` off, the float32 matmul precision, which is slow to ask for, is left open; so
  // is what only GPUs look at with `on_gpu` off.
  static Environment current(bool precision, c10::Device device);
  friend bool operator==(const Environment&, const Environment&) = default;
};

// Puts an environment in place and the former one back. Costs nothing where they are equal.
class EnvironmentGuard {
 public:
  // Of an op on the device.
  EnvironmentGuard(const Environment& wanted, c10::Device device);
  ~EnvironmentGuard();
  EnvironmentGuard(const EnvironmentGuard&) = delete;
  EnvironmentGuard& operator=(const EnvironmentGuard&) = delete;

 private:
  Environment before_;
  Environment wanted_;
  c10::Device device_;
  c10::ScalarType autocast_dtype_{};  // that a later autocast without one of its own would take
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

// Puts a generator back to a state.
void rewind(at::Generator generator, const GeneratorState& state);

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
