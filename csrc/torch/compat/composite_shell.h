// What a composite tensor has in addition to the bytes of its parts, so that it can be rebuilt.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Layout.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <span>

namespace recoup::detail {

// A sparse tensor (COO, CSR, CSC, BSR, BSC) or one that is quantized with one scale. It holds no
// tensor.
class CompositeShell {
 public:
  // The shell of the tensor; none for other kinds, and for parts that are not plain.
  static std::optional<CompositeShell> of(const at::Tensor& tensor);

  // Number of parts.
  [[nodiscard]] std::size_t part_count() const {
    return quantizer_ ? 1 : layout_ == c10::kSparse ? 2 : 3;
  }
  // A tensor of this shell with these parts, in the order of for_each_part().
  [[nodiscard]] at::Tensor rebuild(std::span<const at::Tensor> parts) const;

 private:
  [[nodiscard]] at::Tensor assemble(std::span<const at::Tensor> parts) const;
  explicit CompositeShell(const at::Tensor& tensor);

  c10::DispatchKeySet keys_;
  caffe2::TypeMeta type_;
  c10::Device device_;
  c10::Layout layout_;
  c10::SmallVector<std::int64_t, 4> sizes_;
  std::int64_t sparse_dim_ = 0;  // of COO
  bool coalesced_ = false;       // of COO
  bool requires_grad_ = false;
  at::QuantizerPtr quantizer_;  // null: not quantized
};

// Calls visit(part) for each plain tensor that a tensor with a shell consists of; for a plain
// tensor, visit(tensor); for other kinds, nothing.
void for_each_part(const at::Tensor& tensor, c10::function_ref<void(const at::Tensor&)> visit);

}  // namespace recoup::detail
