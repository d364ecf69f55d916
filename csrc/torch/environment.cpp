#include "csrc/torch/environment.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <xmmintrin.h>

#include <cstring>

#include "csrc/torch/bypass.h"

namespace recoup::detail {
namespace {

constexpr unsigned kFlushDenormal = 0x8040;  // FTZ and DAZ in MXCSR

bool flushes_denormal() { return (_mm_getcsr() & kFlushDenormal) == kFlushDenormal; }

void apply(const Environment& from, const Environment& to) {
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
    static const std::string kNames[] = {"highest", "high", "medium"};
    context.setFloat32MatmulPrecision(kNames[to.matmul_precision]);
  }
}

at::Tensor state_tensor(at::Generator& generator) {
  const Bypass bypass;  // not the program's memory
  return generator.get_state();
}

}  // namespace

Environment Environment::current(bool precision) {
  const at::Context& context = at::globalContext();
  return {.threads = static_cast<std::int16_t>(at::get_num_threads()),
          .grad_mode = c10::GradMode::is_enabled(),
          .deterministic = context.deterministicAlgorithms(),
          .fill_uninitialized = context.deterministicFillUninitializedMemory(),
          .mkldnn = context.userEnabledMkldnn(),
          .flush_denormal = flushes_denormal(),
          .matmul_precision = precision ? static_cast<std::int8_t>(context.float32MatmulPrecision())
                                        : kAnyPrecision};
}

EnvironmentGuard::EnvironmentGuard(const Environment& wanted)
    : before_(Environment::current(wanted.matmul_precision != Environment::kAnyPrecision)),
      wanted_(wanted) {
  if (!(before_ == wanted_)) {
    apply(before_, wanted_);
  }
}

EnvironmentGuard::~EnvironmentGuard() {
  if (!(before_ == wanted_)) {
    apply(wanted_, before_);
  }
}

std::optional<at::Generator> generator_of(c10::ArrayRef<c10::IValue> arguments) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) {
      generator = argument.toGenerator();
    }
  }
  if (generator.device().type() != c10::DeviceType::CPU) {
    return std::nullopt;
  }
  return generator;
}

GeneratorState GeneratorStates::save(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = state_tensor(generator);
  const auto* const bytes = static_cast<const std::uint8_t*>(state.const_data_ptr());
  const auto size = static_cast<std::size_t>(state.numel());
  if (!last_ || last_->size() != size || std::memcmp(last_->data(), bytes, size) != 0) {
    last_ = std::make_shared<const std::vector<std::uint8_t>>(bytes, bytes + size);
  }
  return last_;
}

GeneratorGuard::GeneratorGuard(at::Generator generator, const GeneratorState& state)
    : generator_(std::move(generator)) {
  const std::lock_guard lock(generator_.mutex());
  before_ = state_tensor(generator_);
  const Bypass bypass;
  const at::Tensor wanted =
      at::detail::empty_cpu({static_cast<std::int64_t>(state->size())}, at::kByte, {}, {}, {}, {});
  std::memcpy(wanted.mutable_data_ptr(), state->data(), state->size());
  generator_.set_state(wanted);
}

GeneratorGuard::~GeneratorGuard() {
  const std::lock_guard lock(generator_.mutex());
  const Bypass bypass;
  generator_.set_state(before_);
}

}  // namespace recoup::detail
