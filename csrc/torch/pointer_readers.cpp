#include "csrc/torch/pointer_readers.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include "csrc/torch/dispatch.h"

namespace recoup::detail {
namespace {

constexpr PointerReader kReaders[] = {
    {"aten::ctc_loss.Tensor", Pointers::kIntegers},
    {"aten::tensor_split.tensor_indices_or_sections", Pointers::kIntegers},
    {"aten::rnn_tanh.data", Pointers::kIntegers},
    {"aten::rnn_relu.data", Pointers::kIntegers},
    {"aten::lstm.data", Pointers::kIntegers},
    {"aten::gru.data", Pointers::kIntegers},
    {"aten::_pad_packed_sequence", Pointers::kIntegers},
    {"aten::_pack_padded_sequence_backward", Pointers::kIntegers},
    {"aten::max_pool1d", Pointers::kArguments},
    {"aten::_reshape_from_tensor", Pointers::kArguments},
    {"aten::choose_qparams_optimized", Pointers::kArguments},
    {"aten::_sobol_engine_draw", Pointers::kAny},
    {"aten::_sobol_engine_ff_", Pointers::kAny},
    {"aten::_sobol_engine_initialize_state_", Pointers::kAny},
    {"aten::_sobol_engine_scramble_", Pointers::kAny},
    {"aten::_rowwise_prune", Pointers::kAny},
    {"aten::_saturate_weight_to_fp16", Pointers::kAny},
    {"aten::fbgemm_linear_quantize_weight", Pointers::kAny},
    {"aten::fbgemm_pack_gemm_matrix_fp16", Pointers::kAny},
    {"aten::fbgemm_pack_quantized_matrix", Pointers::kAny},
    {"aten::fbgemm_pack_quantized_matrix.KN", Pointers::kAny},
    {"aten::fbgemm_linear_int8_weight", Pointers::kAny},
    {"aten::fbgemm_linear_int8_weight_fp32_activation", Pointers::kAny},
    {"aten::fbgemm_linear_fp16_weight", Pointers::kAny},
    {"aten::fbgemm_linear_fp16_weight.out", Pointers::kAny},
    {"aten::fbgemm_linear_fp16_weight_fp32_activation", Pointers::kAny},
    {"aten::fbgemm_linear_fp16_weight_fp32_activation.out", Pointers::kAny},
};

// With autograd's key among those of the call: the composite kernel is the one of every backend.
void enter(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet backend(
      keys.highestBackendKey() == c10::BackendComponent::CUDABit ? c10::DispatchKey::CUDA
      : keys.highestBackendKey() == c10::BackendComponent::PrivateUse1Bit
          ? c10::DispatchKey::PrivateUse1
          : c10::DispatchKey::CPU);
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake) &&
      !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake)) {
    handle(op, backend, stack);
  } else {
    op.redispatchBoxed(backend, stack);
  }
}

void enter_all(torch::Library& library) {
  for (const PointerReader& reader : kReaders) {
    const std::string name(reader.op);
    // One that this PyTorch does not have is left out; a test tells of names that are stale.
    const auto dot = name.find('.');
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload})) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&enter>());
    }
  }
}

}  // namespace

std::span<const PointerReader> pointer_readers() { return kReaders; }

std::optional<Pointers> pointers_of(std::string_view op) {
  const auto* const found = std::find_if(std::begin(kReaders), std::end(kReaders),
                                         [op](const PointerReader& each) { return each.op == op; });
  return found == std::end(kReaders) ? std::nullopt : std::optional(found->pointers);
}

}  // namespace recoup::detail

TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) { recoup::detail::enter_all(library); }
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) { recoup::detail::enter_all(library); }
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) { recoup::detail::enter_all(library); }
