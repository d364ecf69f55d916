// Which operands a result may overwrite while the kernel runs.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

#include "csrc/torch/ops/payload.h"

namespace recoup::detail {

// Note [Overwritable operands]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// A result may take the block of an operand (Note [Results in place] in handover.h) if each of the
// op's kernels reads all that it needs of the operand for an element, or for a row, before it
// writes that element or row of the result. That holds for ops that PyTorch tags `pointwise`, and
// for the row-wise ops that traits.cpp names, with these conditions:
//
// - The operand and the result have the same real floating-point dtype, and so has each other
//   tensor, except masks. Kernels for complex numbers may round otherwise if addresses are equal,
//   and a kernel that converts an operand first allocates the converted copy.
// - The operand has several elements: a number may become a tensor of one element before the result
//   is allocated.
// - The operand fills its storage, and all tensors of its number of elements have its sizes and
//   strides. Then the result has them, too, and each of its elements replaces the operand's, unless
//   an argument asks for another layout: ops with a memory format are left out. Each result is
//   checked after its kernel.
// - It draws no random numbers: a kernel that fails the check has drawn them.
// - Uninitialized memory is not filled (torch.utils.deterministic.fill_uninitialized_memory).
//
// tests/python/torch_compat/test_overwritable.py runs all of these ops both ways.

// Whether empty tensors are filled now.
[[nodiscard]] bool fills_empty_tensors();

// The shape of a tensor argument, and a number that identifies its storage.
struct ArgumentShape {
  c10::IntArrayRef sizes;
  c10::IntArrayRef strides;
  c10::ScalarType type = c10::ScalarType::Undefined;
  bool fills_storage = false;
  std::uintptr_t storage = 0;
};
using ArgumentShapes = c10::SmallVector<ArgumentShape, 4>;

// Whether a result of an op with these arguments may overwrite the storage.
[[nodiscard]] bool is_overwritable(const ArgumentShapes& arguments, std::uintptr_t storage);

// The shapes of plain tensors; a storage is identified by its address.
[[nodiscard]] ArgumentShapes shapes_of(Arguments arguments);
// Whether a tensor has the type, sizes and strides of an input of a replay.
[[nodiscard]] bool has_shape_of_input(const at::Tensor& tensor, const Payload& payload,
                                      std::size_t input);
// Whether a replay may overwrite its input with that index.
[[nodiscard]] bool is_overwritable(const Payload& payload, std::size_t input);

}  // namespace recoup::detail
