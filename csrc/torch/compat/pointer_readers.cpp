#include "csrc/torch/compat/pointer_readers.h"

#include <algorithm>

namespace recoup::detail {
namespace {

constexpr PointerReader kReaders[] = {
    {"aten::ctc_loss.Tensor", Pointers::kIntegers},
    {"aten::tensor_split.tensor_indices_or_sections", Pointers::kIntegers},
    {"aten::rnn_tanh.data", Pointers::kIntegers},
    {"aten::rnn_relu.data", Pointers::kIntegers},
    {"aten::lstm.data", Pointers::kIntegers},
    {"aten::gru.data", Pointers::kIntegers},
    // These read the smallest and the largest index if invariants are checked.
    {"aten::sparse_coo_tensor.indices", Pointers::kIntegers},
    {"aten::sparse_coo_tensor.indices_size", Pointers::kIntegers},
    {"aten::_sparse_coo_tensor_unsafe", Pointers::kIntegers},
    {"aten::_validate_sparse_coo_tensor_args", Pointers::kIntegers},
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
    {"aten::quantile", Pointers::kAny},                // since 2.14
    {"aten::quantile.scalar", Pointers::kAny},         // since 2.14
    {"aten::quantile.out", Pointers::kAny},            // since 2.14
    {"aten::quantile.scalar_out", Pointers::kAny},     // since 2.14
    {"aten::nanquantile", Pointers::kAny},             // since 2.14
    {"aten::nanquantile.scalar", Pointers::kAny},      // since 2.14
    {"aten::nanquantile.out", Pointers::kAny},         // since 2.14
    {"aten::nanquantile.scalar_out", Pointers::kAny},  // since 2.14
};

}  // namespace

std::span<const PointerReader> pointer_readers() { return kReaders; }

std::optional<Pointers> pointers_of(std::string_view op) {
  const auto* const found = std::find_if(std::begin(kReaders), std::end(kReaders),
                                         [op](const PointerReader& each) { return each.op == op; });
  return found == std::end(kReaders) ? std::nullopt : std::optional(found->pointers);
}

}  // namespace recoup::detail
