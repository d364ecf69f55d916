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

}  // namespace recoup::detail
