#include "csrc/torch/calls/in_place_try.h"

#include <algorithm>
#include <span>
#include <utility>

namespace recoup::detail {
namespace {

// A tensor of the same shape over another storage.
at::Tensor over(const StoragePtr& storage, const at::Tensor& tensor) {
  c10::intrusive_ptr<c10::TensorImpl> impl = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true);
  impl->set_storage_keep_dtype(c10::Storage(storage));
  return at::Tensor(std::move(impl));
}

}  // namespace

void InPlaceTry::put_operand(const Call& call, const Operands& operands, const EngineLock& lock) {
  const Handover& handover = session_.engine(lock).op().handover();
  const std::span<const Operand> all = operands.all();
  const auto operand = std::find_if(
      all.begin(), all.end(), [&](const Operand& each) { return each.value == handover.value(); });
  const c10::StorageImpl& storage = impl_of(*operand);
  const StoragePtr bytes =
      storage_over(session_.tensors().arena().at(handover.offset()),
                   static_cast<std::int64_t>(storage.nbytes()), session_.device());
  for (std::size_t i = call.base; i < call.stack.size(); ++i) {
    c10::IValue& argument = call.stack[i];
    if (argument.isTensor() && argument.toTensor().defined() &&
        argument.toTensor().storage().unsafeGetStorageImpl() == &storage) {
      operand_ = over(bytes, argument.toTensor());
      argument = operand_;
    }
  }
}

bool InPlaceTry::is_right(Arguments results) const {
  const EngineLock lock(session_.mutex());
  bool right = !session_.engine(lock).op().handover().taken();
  for_each_tensor(results, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    right |= tensor.has_storage() && tensor.storage().data() == operand_.storage().data() &&
             tensor.storage().unsafeGetStorageImpl() != operand_.storage().unsafeGetStorageImpl() &&
             tensor.scalar_type() == operand_.scalar_type() && tensor.sizes() == operand_.sizes() &&
             tensor.strides() == operand_.strides();
  });
  return right;
}

}  // namespace recoup::detail
