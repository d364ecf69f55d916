// What the schema of an op says of the tensors that it takes and returns.
#pragma once

#include <ATen/core/function_schema.h>

namespace recoup::detail {

// Whether a value of the type may be a tensor, or a list of tensors.
[[nodiscard]] bool holds_tensor(const c10::TypePtr& type);
[[nodiscard]] bool writes(const c10::Argument& argument);
// Whether every tensor that the op returns is a view of an argument that it does not write.
[[nodiscard]] bool is_annotated_view(const c10::FunctionSchema& schema);
// Whether such an op takes other tensors too: it reads those (sizes of a nested tensor).
[[nodiscard]] bool reads_to_view(const c10::FunctionSchema& schema);
// Whether the op returns an object, which may keep the tensors that it was made from: packed
// weights keep their bias.
[[nodiscard]] bool returns_unseen(const c10::FunctionSchema& schema);
// Whether the op takes or returns a tensor.
[[nodiscard]] bool mentions_tensors(const c10::FunctionSchema& schema);

}  // namespace recoup::detail
