#include "csrc/torch/ops/draws.h"

#include <ATen/Context.h>

#include <utility>

#include "csrc/torch/compat/hook.h"

namespace recoup::detail {
namespace {

c10::ArrayRef<c10::IValue> last_of(const torch::jit::Stack& stack, std::size_t count) {
  return c10::ArrayRef<c10::IValue>(stack.data() + (stack.size() - count), count);
}

bool has_own_slot(const OpTraits& traits) {
  return traits.generator_slot >= 0 && !traits.with_generator;
}

std::optional<at::Generator> generator_on(c10::Device device,
                                          c10::ArrayRef<c10::IValue> arguments) {
  return generator_of(arguments, at::globalContext().defaultGenerator(device));
}

}  // namespace

// A kernel in Python would wait for the GIL with the gate held, and a kernel that is not ATen's may
// be in Python: their draws are not repeated.
std::optional<at::Generator> repeatable_generator(const OpTraits& traits, c10::DispatchKeySet keys,
                                                  c10::Device device,
                                                  const torch::jit::Stack& stack,
                                                  std::size_t argument_count) {
  if (!traits.gated || keys.has(c10::DispatchKey::Python) ||
      !(has_own_slot(traits) || !is_gated(device.type()) || gate_works())) {
    return std::nullopt;
  }
  return generator_on(device, last_of(stack, argument_count));
}

void begin_draw(std::optional<Draw>& draw, const OpTraits& traits, const at::Generator& generator,
                torch::jit::Stack& stack, std::size_t argument_count) {
  const std::size_t base = stack.size() - argument_count;
  draw.emplace(generator, has_own_slot(traits)
                              ? &stack[base + static_cast<std::size_t>(traits.generator_slot)]
                              : nullptr);
}

void draw_again(const c10::OperatorHandle& op, const OpTraits& traits, c10::DispatchKeySet keys,
                c10::Device device, const GeneratorState& state, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::size_t base = stack.size() - count;
  if (!is_gated(device.type()) || traits.generator_slot < 0) {
    const GeneratorGuard generator(*generator_on(device, last_of(stack, count)), state);
    Hook::proceed(op, keys, &stack);
    return;
  }
  at::Generator generator = private_generator(state);
  const std::size_t slot = base + static_cast<std::size_t>(traits.generator_slot);
  if (!traits.with_generator) {
    stack[slot] = std::move(generator);
    Hook::proceed(op, keys, &stack);
    return;
  }
  stack.insert(stack.begin() + static_cast<std::ptrdiff_t>(slot), std::move(generator));
  Hook::proceed(*traits.with_generator, keys, &stack);
}

}  // namespace recoup::detail
