#include "csrc/torch/compat/list_ops.h"

#include <algorithm>

#include "csrc/torch/compat/schemas.h"

namespace recoup::detail {
namespace {

// Each kernel is a loop over the lists in order. Before the loop it only checks lengths, which each
// part passes or fails as the whole does, and returns where `found_inf` is 1. The arguments outside
// lists (lr, grad_scale, found_inf, inv_scale) are read. Only the last of these ops writes
// found_inf, and only ever 1.
constexpr std::string_view kInParts[] = {
    "aten::_fused_adam_",
    "aten::_fused_adam_.tensor_lr",
    "aten::_fused_adamw_",
    "aten::_fused_adamw_.tensor_lr",
    "aten::_fused_sgd_",
    "aten::_fused_sgd_.tensor_lr",
    "aten::_fused_adagrad_",
    "aten::_fused_adagrad_.tensor_lr",
    "aten::_amp_foreach_non_finite_check_and_unscale_",
};

bool is_list(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  return type->kind() == c10::TypeKind::ListType &&
         type->containedType(0)->kind() == c10::TypeKind::TensorType;
}

bool is_written_list(const c10::Argument& argument) {
  return is_list(argument) && writes(argument);
}

}  // namespace

bool is_list_loop(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  const auto& returns = op.schema().returns();
  const bool takes = std::any_of(arguments.begin(), arguments.end(), &is_list);
  const bool makes = std::any_of(returns.begin(), returns.end(), &is_list) ||
                     std::any_of(arguments.begin(), arguments.end(), &is_written_list);
  return takes && makes &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

std::span<const std::string_view> ops_in_parts() { return kInParts; }

}  // namespace recoup::detail
