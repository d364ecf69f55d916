#include "csrc/torch/compat/components.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

namespace recoup::detail {
namespace {

using VisitStorage = c10::function_ref<void(const c10::Storage&)>;

void visit_tensor(const at::Tensor& tensor, const VisitStorage& visit) {
  if (!tensor.defined()) {
    return;
  }
  if (tensor.has_storage()) {
    visit(tensor.storage());
  }
  if (!is_plain(*tensor.unsafeGetTensorImpl())) {
    for_each_component(tensor, visit);
  }
}

void visit_quantizer(const at::Quantizer* quantizer, const VisitStorage& visit) {
  if (const auto* per_channel = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer)) {
    visit_tensor(per_channel->scales(), visit);
    visit_tensor(per_channel->zero_points(), visit);
  }
}

}  // namespace

TensorKind kind_of(const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (is_plain(*impl)) {
    return TensorKind::kPlain;
  }
  if (impl->key_set().has_any(kWrapperKeys)) {
    return TensorKind::kWrapper;
  }
  const bool known = dynamic_cast<const at::SparseTensorImpl*>(impl) != nullptr ||
                     dynamic_cast<const at::SparseCsrTensorImpl*>(impl) != nullptr ||
                     dynamic_cast<const at::native::NestedTensorImpl*>(impl) != nullptr ||
                     dynamic_cast<const at::QTensorImpl*>(impl) != nullptr;
  return known ? TensorKind::kComposite : TensorKind::kOpaque;
}

void for_each_component(const at::Tensor& tensor, VisitStorage visit) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (const auto* sparse = dynamic_cast<const at::SparseTensorImpl*>(impl)) {
    visit_tensor(sparse->indices(), visit);
    visit_tensor(sparse->values(), visit);
  } else if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(impl)) {
    visit_tensor(compressed->compressed_indices(), visit);
    visit_tensor(compressed->plain_indices(), visit);
    visit_tensor(compressed->values(), visit);
  } else if (dynamic_cast<const at::native::NestedTensorImpl*>(impl) != nullptr) {
    visit(impl->unsafe_storage());
    for_each_description(tensor, visit);
  } else if (auto* quantized = dynamic_cast<at::QTensorImpl*>(impl)) {
    visit(impl->unsafe_storage());
    visit_quantizer(quantized->quantizer().get(), visit);
  }
}

void for_each_description(const at::Tensor& tensor, VisitStorage visit) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (const auto* nested = dynamic_cast<const at::native::NestedTensorImpl*>(impl)) {
    visit_tensor(nested->get_nested_sizes(), visit);
    visit_tensor(nested->get_nested_strides(), visit);
    visit_tensor(nested->get_storage_offsets(), visit);
  }
}

CompositeShell::CompositeShell(const at::Tensor& tensor)
    : keys_(tensor.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView),
      type_(tensor.dtype()),
      device_(tensor.device()),
      layout_(tensor.layout()),
      requires_grad_(tensor.requires_grad()) {}

std::optional<CompositeShell> CompositeShell::of(const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  CompositeShell shell(tensor);
  if (const auto* sparse = dynamic_cast<const at::SparseTensorImpl*>(impl)) {
    shell.sparse_dim_ = sparse->sparse_dim();
    shell.coalesced_ = sparse->coalesced();
  } else if (auto* quantized = dynamic_cast<const at::QTensorImpl*>(impl)) {
    shell.quantizer_ = const_cast<at::QTensorImpl*>(quantized)->quantizer();
    if (shell.quantizer_->qscheme() != at::kPerTensorAffine) {
      return std::nullopt;  // the quantizer has tensors
    }
  } else if (dynamic_cast<const at::SparseCsrTensorImpl*>(impl) == nullptr ||
             impl->layout() == c10::kSparseBsc) {
    return std::nullopt;  // replays of ops on BSC tensors fail: kernels ask for their rows
  }
  shell.sizes_.assign(impl->sizes().begin(), impl->sizes().end());
  bool plain = true;
  for_each_part(
      tensor, [&plain](const at::Tensor& part) { plain &= is_plain(*part.unsafeGetTensorImpl()); });
  return plain ? std::optional(std::move(shell)) : std::nullopt;
}

void for_each_part(const at::Tensor& tensor, c10::function_ref<void(const at::Tensor&)> visit) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (is_plain(*impl)) {
    visit(tensor);
  } else if (const auto* sparse = dynamic_cast<const at::SparseTensorImpl*>(impl)) {
    visit(sparse->indices());
    visit(sparse->values());
  } else if (const auto* compressed = dynamic_cast<const at::SparseCsrTensorImpl*>(impl)) {
    visit(compressed->compressed_indices());
    visit(compressed->plain_indices());
    visit(compressed->values());
  } else if (dynamic_cast<const at::QTensorImpl*>(impl) != nullptr) {
    // A plain tensor of the quantized type over the same storage.
    at::Tensor plain = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(impl->unsafe_storage()), c10::DispatchKeySet(c10::DispatchKey::CPU),
        impl->dtype());
    plain.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(),
                                                       impl->storage_offset());
    visit(plain);
  }
}

at::Tensor CompositeShell::rebuild(std::span<const at::Tensor> parts) const {
  at::Tensor tensor = assemble(parts);
  if (requires_grad_) {
    tensor.unsafeGetTensorImpl()->set_requires_grad(true);
  }
  return tensor;
}

at::Tensor CompositeShell::assemble(std::span<const at::Tensor> parts) const {
  if (quantizer_) {
    const c10::TensorImpl& plain = *parts[0].unsafeGetTensorImpl();
    at::Tensor tensor = at::detail::make_tensor<at::QTensorImpl>(
        c10::Storage(plain.unsafe_storage()), keys_, type_, quantizer_);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(plain.sizes(), plain.strides(),
                                                        plain.storage_offset());
    return tensor;
  }
  if (layout_ == c10::kSparse) {
    auto impl = c10::make_intrusive<at::SparseTensorImpl>(keys_, type_);
    const auto dense_dim = static_cast<std::int64_t>(sizes_.size()) - sparse_dim_;
    impl->raw_resize_(sparse_dim_, dense_dim, c10::IntArrayRef(sizes_));
    impl->set_indices_and_values_unsafe(parts[0], parts[1]);
    impl->set_coalesced(coalesced_);
    return at::Tensor(std::move(impl));
  }
  auto impl = c10::make_intrusive<at::SparseCsrTensorImpl>(keys_, device_, layout_, type_);
  impl->set_member_tensors(parts[0], parts[1], parts[2], c10::IntArrayRef(sizes_));
  return at::Tensor(std::move(impl));
}

}  // namespace recoup::detail
