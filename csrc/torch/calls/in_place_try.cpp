#include "csrc/torch/calls/in_place_try.h"

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

bool InPlaceTry::prepare(Operands& operands, std::optional<Bytes> asked, torch::jit::Stack& stack,
                         std::size_t base) {
  operands.find_overwritable();
  std::optional<std::size_t> index;
  void* address = nullptr;
  {
    const EngineLock lock(session_.mutex());
    session_.wait_for_replays(lock);
    ProgramOp& op = session_.engine(lock).op();
    index = op.hand_over(operands.all(), asked);
    if (!index) {
      return false;
    }
    address = session_.tensors().arena().at(op.handover().offset());
  }
  const c10::StorageImpl& storage = impl_of(operands.all()[*index]);
  const StoragePtr bytes =
      storage_over(address, static_cast<std::int64_t>(storage.nbytes()), session_.device());
  stack.resize(base);
  for (const c10::IValue& argument : operands.arguments()) {
    stack.push_back(own_copy(argument));
    if (argument.isTensor() && argument.toTensor().defined() &&
        argument.toTensor().storage().unsafeGetStorageImpl() == &storage) {
      operand_ = over(bytes, argument.toTensor());
      stack.back() = operand_;
    }
  }
  return true;
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
