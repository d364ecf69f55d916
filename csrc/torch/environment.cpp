#include "csrc/torch/environment.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <xmmintrin.h>

#include <cstring>

#include "csrc/torch/bypass.h"

namespace recoup::detail {
namespace {

constexpr unsigned kFlushDenormal = 0x8040;  // FTZ and DAZ in MXCSR

bool flushes_denormal() { return (_mm_getcsr() & kFlushDenormal) == kFlushDenormal; }

// Bits of Environment::gpu.
enum GpuSwitches : std::int32_t {
  kConvolutions = 1,  // in TF32
  kRecurrent = 2,     // the same
  kDeterministicCudnn = 4,
  kBenchmark = 8,
  kHalfSums = 16,
  kHalf = 32,  // an option of three; two bits
  kBfloat16 = 128,
  kCudnn = 512,
};

std::int32_t gpu_switches() {
  const at::Context& context = at::globalContext();
  const auto in_tf32 = [&](at::Float32Op op) {
    return context.float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
  };
  return (in_tf32(at::Float32Op::CONV) ? kConvolutions : 0) |
         (in_tf32(at::Float32Op::RNN) ? kRecurrent : 0) |
         (context.deterministicCuDNN() ? kDeterministicCudnn : 0) |
         (context.benchmarkCuDNN() ? kBenchmark : 0) |
         (context.allowFP16AccumulationCuBLAS() ? kHalfSums : 0) |
         (context.userEnabledCuDNN() ? kCudnn : 0) |
         static_cast<std::int32_t>(context.allowFP16ReductionCuBLAS()) * kHalf |
         static_cast<std::int32_t>(context.allowBF16ReductionCuBLAS()) * kBfloat16;
}

void apply_gpu(std::int32_t from, std::int32_t to) {
  at::Context& context = at::globalContext();
  const auto on = [to](GpuSwitches bit) { return (to & bit) != 0; };
  const auto tf32 = [&](at::Float32Op op, bool wanted) {
    context.setFloat32Precision(at::Float32Backend::CUDA, op,
                                wanted ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
  };
  if (((from ^ to) & kConvolutions) != 0) {
    tf32(at::Float32Op::CONV, on(kConvolutions));
  }
  if (((from ^ to) & kRecurrent) != 0) {
    tf32(at::Float32Op::RNN, on(kRecurrent));
  }
  context.setDeterministicCuDNN(on(kDeterministicCudnn));
  context.setBenchmarkCuDNN(on(kBenchmark));
  context.setUserEnabledCuDNN(on(kCudnn));
  context.setAllowFP16AccumulationCuBLAS(on(kHalfSums));
  // Reduced precision or not; and whether a product may be split into sums.
  const auto option = [to](GpuSwitches bits) {
    return static_cast<at::CuBLASReductionOption>((to / bits) & 3);
  };
  using Option = at::CuBLASReductionOption;
  context.setAllowFP16ReductionCuBLAS(
      option(kHalf) == Option::AllowReducedPrecisionWithSplitK,
      option(kHalf) != Option::DisallowReducedPrecisionDisallowSplitK);
  context.setAllowBF16ReductionCuBLAS(
      option(kBfloat16) == Option::AllowReducedPrecisionWithSplitK,
      option(kBfloat16) != Option::DisallowReducedPrecisionDisallowSplitK);
}

// Both, for either may be asked by an op of either.
std::int8_t matmul_precision() {
  const at::Context& context = at::globalContext();
  const auto of = [&](at::Float32Backend backend) {
    return static_cast<int>(context.float32Precision(backend, at::Float32Op::MATMUL));
  };
  return static_cast<std::int8_t>(of(at::Float32Backend::MKLDNN) * 8 +
                                  of(at::Float32Backend::CUDA));
}

void set_matmul_precision(std::int8_t both) {
  at::Context& context = at::globalContext();
  const auto set = [&](at::Float32Backend backend, int precision) {
    context.setFloat32Precision(backend, at::Float32Op::MATMUL,
                                static_cast<at::Float32Precision>(precision));
  };
  set(at::Float32Backend::MKLDNN, both / 8);
  set(at::Float32Backend::CUDA, both % 8);
}

void set_autocast(c10::DeviceType device, std::int8_t wanted) {
  at::autocast::set_autocast_enabled(device, wanted != Environment::kNoAutocast);
  if (wanted != Environment::kNoAutocast) {
    at::autocast::set_autocast_dtype(device, static_cast<at::ScalarType>(wanted));
  }
}

void apply(const Environment& from, const Environment& to, c10::DeviceType device) {
  at::Context& context = at::globalContext();
  if (from.threads != to.threads) {
    at::set_num_threads(to.threads);
  }
  if (from.grad_mode != to.grad_mode) {
    c10::GradMode::set_enabled(to.grad_mode);
  }
  if (from.deterministic != to.deterministic) {
    context.setDeterministicAlgorithms(to.deterministic, context.deterministicAlgorithmsWarnOnly());
  }
  if (from.fill_uninitialized != to.fill_uninitialized) {
    context.setDeterministicFillUninitializedMemory(to.fill_uninitialized);
  }
  if (from.mkldnn != to.mkldnn) {
    context.setUserEnabledMkldnn(to.mkldnn);
  }
  if (from.flush_denormal != to.flush_denormal) {
    context.setFlushDenormal(to.flush_denormal);
  }
  if (from.matmul_precision != to.matmul_precision) {
    set_matmul_precision(to.matmul_precision);
  }
  if (from.autocast != to.autocast) {
    set_autocast(device, to.autocast);
  }
  if (from.gpu != to.gpu) {
    apply_gpu(from.gpu, to.gpu);
  }
}

at::Tensor state_tensor(at::Generator& generator) {
  const Bypass bypass;  // not the program's memory
  return generator.get_state();
}

std::array<std::uint64_t, 2> gpu_state(const at::Generator& generator) {
  return {generator.current_seed(), generator.get_offset()};
}

// The seed first: it puts the offset to 0.
void set_gpu_state(at::Generator& generator, const std::array<std::uint64_t, 2>& state) {
  generator.set_current_seed(state[0]);
  generator.set_offset(state[1]);
}

}  // namespace

Environment Environment::current(bool precision, c10::Device device) {
  const bool on_gpu = !device.is_cpu();
  const at::Context& context = at::globalContext();
  return {
      .threads = static_cast<std::int16_t>(at::get_num_threads()),
      .grad_mode = c10::GradMode::is_enabled(),
      .deterministic = context.deterministicAlgorithms(),
      .fill_uninitialized = context.deterministicFillUninitializedMemory(),
      .mkldnn = context.userEnabledMkldnn(),
      .flush_denormal = flushes_denormal(),
      .matmul_precision = precision ? ::recoup::detail::matmul_precision() : kAnyPrecision,
      .autocast = at::autocast::is_autocast_enabled(device.type())
                      ? static_cast<std::int8_t>(at::autocast::get_autocast_dtype(device.type()))
                      : kNoAutocast,
      .gpu = on_gpu ? gpu_switches() : kNoGpu};
}

EnvironmentGuard::EnvironmentGuard(const Environment& wanted, c10::Device device)
    : before_(Environment::current(wanted.matmul_precision != Environment::kAnyPrecision, device)),
      wanted_(wanted),
      device_(device) {
  if (!(before_ == wanted_)) {
    autocast_dtype_ = at::autocast::get_autocast_dtype(device_.type());
    apply(before_, wanted_, device_.type());
  }
}

EnvironmentGuard::~EnvironmentGuard() {
  if (!(before_ == wanted_)) {
    apply(wanted_, before_, device_.type());
    at::autocast::set_autocast_dtype(device_.type(), autocast_dtype_);
  }
}

std::optional<at::Generator> generator_of(c10::ArrayRef<c10::IValue> arguments,
                                          c10::Device device) {
  at::Generator generator = device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                                            : at::globalContext().defaultGenerator(device);
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) {
      generator = argument.toGenerator();
    }
  }
  if (generator.device().type() != device.type()) {
    return std::nullopt;
  }
  return generator;
}

GeneratorState GeneratorStates::save(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  at::Tensor state;
  std::array<std::uint64_t, 2> on_gpu{};
  const bool cpu = generator.device().is_cpu();
  if (cpu) {
    state = state_tensor(generator);
  } else {
    on_gpu = gpu_state(generator);
  }
  const auto* const bytes = cpu ? static_cast<const std::uint8_t*>(state.const_data_ptr())
                                : reinterpret_cast<const std::uint8_t*>(on_gpu.data());
  const std::size_t size = cpu ? static_cast<std::size_t>(state.numel()) : sizeof on_gpu;
  if (!last_ || last_->size() != size || std::memcmp(last_->data(), bytes, size) != 0) {
    last_ = std::make_shared<const std::vector<std::uint8_t>>(bytes, bytes + size);
  }
  return last_;
}

namespace {

// With its lock held.
void put_back(at::Generator& generator, const GeneratorState& state) {
  if (!generator.device().is_cpu()) {
    std::array<std::uint64_t, 2> wanted{};
    std::memcpy(wanted.data(), state->data(), sizeof wanted);
    set_gpu_state(generator, wanted);
    return;
  }
  const Bypass bypass;
  const at::Tensor wanted =
      at::detail::empty_cpu({static_cast<std::int64_t>(state->size())}, at::kByte, {}, {}, {}, {});
  std::memcpy(wanted.mutable_data_ptr(), state->data(), state->size());
  generator.set_state(wanted);
}

}  // namespace

void rewind(at::Generator generator, const GeneratorState& state) {
  const std::lock_guard lock(generator.mutex());
  put_back(generator, state);
}

GeneratorGuard::GeneratorGuard(at::Generator generator, const GeneratorState& state)
    : generator_(std::move(generator)) {
  const std::lock_guard lock(generator_.mutex());
  if (generator_.device().is_cpu()) {
    before_ = state_tensor(generator_);
  } else {
    before_on_gpu_ = gpu_state(generator_);
  }
  put_back(generator_, state);
}

GeneratorGuard::~GeneratorGuard() {
  const std::lock_guard lock(generator_.mutex());
  if (!generator_.device().is_cpu()) {
    set_gpu_state(generator_, before_on_gpu_);
    return;
  }
  const Bypass bypass;
  generator_.set_state(before_);
}

}  // namespace recoup::detail
