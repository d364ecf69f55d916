// Tensors that consist of more than one strided buffer, and their storages.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Layout.h>
#include <c10/core/QScheme.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <typeinfo>
#include <vector>

namespace recoup::detail {

enum class TensorKind : std::uint8_t {
  kPlain,      // strided, over a storage of its own
  kComposite,  // its bytes are in storages that recoup can find: sparse, nested, quantized
  kWrapper,    // has no bytes of its own: ops on the inner tensor reach them
  kOpaque,     // its bytes cannot be located: a oneDNN layout, an unknown class
};

// Strided tensors with one of these keys are wrappers.
inline constexpr c10::DispatchKeySet kWrapperKeys{
    c10::DispatchKey::ZeroTensor,           c10::DispatchKey::Python,
    c10::DispatchKey::FuncTorchBatched,     c10::DispatchKey::Batched,
    c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize};

// Decided by class, not by a list of keys: a new kind of tensor is a new class.
inline bool is_plain(const c10::TensorImpl& tensor) {
  return typeid(tensor) == typeid(c10::TensorImpl) && !tensor.key_set().has_any(kWrapperKeys);
}

TensorKind kind_of(const at::Tensor& tensor);

// Calls visit(storage) for each storage of a composite tensor, including those of the tensors in
// it. Some may have no bytes.
void for_each_component(const at::Tensor& tensor,
                        c10::function_ref<void(const c10::Storage&)> visit);

// Visits only the storages that PyTorch reads by pointer, without an op, whenever the tensor's
// sizes are requested: those that describe the parts of a nested tensor.
void for_each_description(const at::Tensor& tensor,
                          c10::function_ref<void(const c10::Storage&)> visit);

// What a composite tensor has in addition to the bytes of its parts, so that it can be rebuilt:
// of a sparse tensor (COO, CSR, CSC, BSR), of a nested tensor, or of a quantized one. It holds no
// tensor.
class CompositeShell {
 public:
  // The shell of the tensor; none for other kinds, and for parts that are not plain.
  static std::optional<CompositeShell> of(const at::Tensor& tensor);

  // Number of parts.
  [[nodiscard]] std::size_t part_count() const {
    return quantizer_ || nested_ ? 1 : !scheme_ && layout_ == c10::kSparse ? 2 : 3;
  }
  // Size of the memory that it refers to.
  [[nodiscard]] std::size_t heap_bytes() const;
  // A tensor of this shell with these parts, in the order of for_each_part().
  [[nodiscard]] at::Tensor rebuild(std::span<const at::Tensor> parts) const;

 private:
  // The content of a small tensor of integers on the CPU.
  struct Numbers {
    c10::SmallVector<std::int64_t, 2> sizes;
    std::vector<std::int64_t> values;
    // False: the tensor is another kind of tensor, or it is evicted.
    [[nodiscard]] bool copy(const at::Tensor& tensor);
    // A tensor with this content, in memory of its own.
    [[nodiscard]] at::Tensor to_tensor() const;
  };
  // What describes the parts of a nested tensor.
  struct Nested {
    Numbers sizes, strides, offsets;
  };

  explicit CompositeShell(const at::Tensor& tensor);
  // False: the tensor is of a kind that has no shell.
  [[nodiscard]] bool describe(const c10::TensorImpl& impl);
  [[nodiscard]] at::Tensor assemble(std::span<const at::Tensor> parts) const;
  [[nodiscard]] at::Tensor quantized(std::span<const at::Tensor> parts) const;

  c10::DispatchKeySet keys_;
  caffe2::TypeMeta type_;
  c10::Device device_;
  c10::Layout layout_;
  c10::SmallVector<std::int64_t, 4> sizes_;
  std::int64_t sparse_dim_ = 0;  // of COO
  bool coalesced_ = false;       // of COO
  bool requires_grad_ = false;
  // Of a quantized tensor.
  std::optional<c10::QScheme> scheme_;
  at::QuantizerPtr quantizer_;  // with one scale
  std::int64_t axis_ = 0;       // with a scale for each index along this dimension
  std::optional<Nested> nested_;
};

// Calls visit(part) for each plain tensor that a tensor with a shell consists of; for a plain
// tensor, visit(tensor); for other kinds, nothing.
void for_each_part(const at::Tensor& tensor, c10::function_ref<void(const at::Tensor&)> visit);

}  // namespace recoup::detail
