#include "csrc/torch/compat/components.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "csrc/torch/compat/storage_access.h"

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

// A plain tensor of the same type over the same storage.
at::Tensor over_storage_of(const c10::TensorImpl& impl) {
  const c10::DispatchKey key = c10::computeDispatchKey(std::nullopt, c10::kStrided, impl.device());
  return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(impl.unsafe_storage()),
                                                  c10::DispatchKeySet(key), impl.dtype());
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

bool CompositeShell::Numbers::copy(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_plain(*tensor.unsafeGetTensorImpl()) || !tensor.has_storage() ||
      !tensor.device().is_cpu() || tensor.scalar_type() != at::kLong || !tensor.is_contiguous()) {
    return false;
  }
  const auto* const data =
      static_cast<const std::int64_t*>(data_of(*tensor.storage().unsafeGetStorageImpl()).get());
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (data == nullptr && count > 0) {
    return false;
  }
  sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  values.resize(count);
  std::copy_n(data + (count > 0 ? tensor.storage_offset() : 0), count, values.begin());
  return true;
}

at::Tensor CompositeShell::Numbers::to_tensor() const {
  auto owned = std::make_unique<std::vector<std::int64_t>>(values);
  void* const data = owned->data();
  const std::size_t nbytes = values.size() * sizeof(std::int64_t);
  const auto free = [](void* context) { delete static_cast<std::vector<std::int64_t>*>(context); };
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes,
      c10::DataPtr(data, owned.release(), free, c10::Device(c10::kCPU)), nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU),
      at::scalarTypeToTypeMeta(at::kLong));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(c10::IntArrayRef(sizes));
  return tensor;
}

std::size_t CompositeShell::heap_bytes() const {
  return nested_ ? sizeof(std::int64_t) *
                       (nested_->sizes.values.size() + nested_->strides.values.size() +
                        nested_->offsets.values.size())
                 : 0;
}

bool CompositeShell::describe(const c10::TensorImpl& impl) {
  if (const auto* nested = dynamic_cast<const at::native::NestedTensorImpl*>(&impl)) {
    Nested& into = nested_.emplace();
    return into.sizes.copy(nested->get_nested_sizes()) &&
           into.strides.copy(nested->get_nested_strides()) &&
           into.offsets.copy(nested->get_storage_offsets());
  }
  sizes_.assign(impl.sizes().begin(), impl.sizes().end());
  if (const auto* sparse = dynamic_cast<const at::SparseTensorImpl*>(&impl)) {
    sparse_dim_ = sparse->sparse_dim();
    coalesced_ = sparse->coalesced();
    return true;
  }
  if (const auto* tensor = dynamic_cast<const at::QTensorImpl*>(&impl)) {
    const at::QuantizerPtr quantizer = const_cast<at::QTensorImpl*>(tensor)->quantizer();
    scheme_ = quantizer->qscheme();
    if (scheme_ == at::kPerTensorAffine) {
      quantizer_ = quantizer;
      return true;
    }
    const auto* each = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
    axis_ = each == nullptr ? 0 : each->axis();
    return each != nullptr;
  }
  return dynamic_cast<const at::SparseCsrTensorImpl*>(&impl) != nullptr;
}

std::optional<CompositeShell> CompositeShell::of(const at::Tensor& tensor) {
  CompositeShell shell(tensor);
  if (kind_of(tensor) != TensorKind::kComposite || !shell.describe(*tensor.unsafeGetTensorImpl())) {
    return std::nullopt;
  }
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
  } else if (auto* quantized = dynamic_cast<const at::QTensorImpl*>(impl)) {
    const at::Tensor plain = over_storage_of(*impl);
    plain.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(),
                                                       impl->storage_offset());
    visit(plain);
    const at::QuantizerPtr quantizer = const_cast<at::QTensorImpl*>(quantized)->quantizer();
    if (const auto* each = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get())) {
      visit(each->scales());
      visit(each->zero_points());
    }
  } else if (dynamic_cast<const at::native::NestedTensorImpl*>(impl) != nullptr) {
    const at::Tensor plain = over_storage_of(*impl);
    const std::size_t count = impl->unsafe_storage().nbytes() / impl->itemsize();
    plain.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(count)});
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

at::Tensor CompositeShell::quantized(std::span<const at::Tensor> parts) const {
  const c10::TensorImpl& plain = *parts[0].unsafeGetTensorImpl();
  at::QuantizerPtr quantizer = quantizer_;
  const at::ScalarType type = c10::typeMetaToScalarType(type_);
  if (scheme_ == at::kPerChannelAffine) {
    quantizer = c10::make_intrusive<at::PerChannelAffineQuantizer>(type, parts[1], parts[2], axis_);
  } else if (scheme_ == at::kPerChannelAffineFloatQParams) {
    quantizer = c10::make_intrusive<at::PerChannelAffineFloatQParamsQuantizer>(type, parts[1],
                                                                               parts[2], axis_);
  }
  at::Tensor tensor = at::detail::make_tensor<at::QTensorImpl>(c10::Storage(plain.unsafe_storage()),
                                                               keys_, type_, std::move(quantizer));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(plain.sizes(), plain.strides(),
                                                      plain.storage_offset());
  return tensor;
}

at::Tensor CompositeShell::assemble(std::span<const at::Tensor> parts) const {
  if (scheme_) {
    return quantized(parts);
  }
  if (nested_) {
    return at::detail::make_tensor<at::native::NestedTensorImpl>(
        c10::Storage(parts[0].unsafeGetTensorImpl()->unsafe_storage()), keys_, type_,
        nested_->sizes.to_tensor(), nested_->strides.to_tensor(), nested_->offsets.to_tensor());
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
