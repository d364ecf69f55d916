#include "csrc/torch/ops/overwritable.h"

#include <ATen/Context.h>
#include <c10/core/Contiguity.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace recoup::detail {
namespace {

std::int64_t elements(c10::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

ArgumentShape shape_in(const TensorArgument& tensor, const Payload& payload) {
  const std::int64_t* const dims = payload.dims.data() + tensor.dims_begin;
  ArgumentShape shape{.sizes = {dims, tensor.dim},
                      .strides = {dims + tensor.dim, tensor.dim},
                      .type = tensor.type.toScalarType(),
                      .fills_storage = false,
                      .storage = tensor.index};
  const std::int64_t bytes =
      elements(shape.sizes) * static_cast<std::int64_t>(tensor.type.itemsize());
  shape.fills_storage = tensor.offset == 0 && !tensor.conjugate && !tensor.negative &&
                        bytes == payload.storage_bytes[tensor.index] &&
                        c10::_compute_non_overlapping_and_dense(shape.sizes, shape.strides);
  return shape;
}

}  // namespace

bool fills_empty_tensors() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

bool is_overwritable(const ArgumentShapes& arguments, std::uintptr_t storage) {
  const auto* const operand =
      std::find_if(arguments.begin(), arguments.end(),
                   [storage](const ArgumentShape& each) { return each.storage == storage; });
  if (operand == arguments.end() || !c10::isFloatingType(operand->type)) {
    return false;
  }
  const std::int64_t count = elements(operand->sizes);
  return count > 1 &&
         std::all_of(arguments.begin(), arguments.end(), [&](const ArgumentShape& each) {
           const bool same_shape = each.sizes == operand->sizes && each.strides == operand->strides;
           const bool same_type = each.type == operand->type || each.type == c10::ScalarType::Bool;
           if (each.storage == storage) {
             return same_shape && each.type == operand->type && each.fills_storage;
           }
           return same_type && (same_shape || elements(each.sizes) < count);
         });
}

ArgumentShapes shapes_of(Arguments arguments) {
  ArgumentShapes shapes;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      return;
    }
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    shapes.push_back({.sizes = tensor.sizes(),
                      .strides = tensor.strides(),
                      .type = tensor.scalar_type(),
                      .fills_storage = tensor.storage_offset() == 0 && !tensor.is_conj() &&
                                       !tensor.is_neg() && tensor.nbytes() == storage->nbytes() &&
                                       tensor.is_non_overlapping_and_dense(),
                      .storage = reinterpret_cast<std::uintptr_t>(storage)});
  });
  return shapes;
}

bool has_shape_of_input(const at::Tensor& tensor, const Payload& payload, std::size_t input) {
  return std::any_of(payload.tensors.begin(), payload.tensors.end(),
                     [&](const TensorArgument& argument) {
                       if (argument.source != Source::kInput || argument.index != input) {
                         return false;
                       }
                       const ArgumentShape shape = shape_in(argument, payload);
                       return tensor.scalar_type() == shape.type && tensor.sizes() == shape.sizes &&
                              tensor.strides() == shape.strides;
                     });
}

bool is_overwritable(const Payload& payload, std::size_t input) {
  if (!payload.overwritable || !payload.device.is_cpu() || !payload.composites.empty()) {
    return false;
  }
  ArgumentShapes shapes;
  for (const TensorArgument& tensor : payload.tensors) {
    if (tensor.source == Source::kScalar) {
      continue;
    }
    if (tensor.source != Source::kInput) {
      return false;
    }
    shapes.push_back(shape_in(tensor, payload));
  }
  return is_overwritable(shapes, input);
}

}  // namespace recoup::detail
