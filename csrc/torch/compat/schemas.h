// What an op's schema says about the tensors that the op takes and returns.
#pragma once

#include <ATen/core/function_schema.h>

namespace recoup::detail {

// Whether a value of the type may be a tensor, or a list of tensors.
[[nodiscard]] bool holds_tensor(const c10::TypePtr& type);
[[nodiscard]] bool writes(const c10::Argument& argument);
// Whether every tensor that the op returns is a view of an argument that it does not write.
[[nodiscard]] bool is_annotated_view(const c10::FunctionSchema& schema);
// Whether such an op takes other tensors too, which it reads (sizes of a nested tensor).
[[nodiscard]] bool reads_to_view(const c10::FunctionSchema& schema);
// Whether the op returns an object that may hold tensors which recoup cannot find, such as its
// arguments: packed weights keep their bias.
[[nodiscard]] bool returns_unseen(const c10::FunctionSchema& schema);
// Whether the op takes or returns a tensor.
[[nodiscard]] bool mentions_tensors(const c10::FunctionSchema& schema);

}  // namespace recoup::detail
