// Storages of an op that the frames of surrounding kernels hold, or that escape.
#include "csrc/torch/calls/op_call.h"

namespace recoup::detail {

// Descriptions are read outside of any op, where they cannot be restored, so they escape.
void OpCall::keep_descriptions() {
  const EngineLock lock(session_.mutex());
  const auto keep = [&](const c10::Storage& storage) {
    if (c10::StorageImpl* const impl = session_.tensors().managed(storage)) {
      if (const StorageId id = session_.storages(lock).find(*impl); id.valid()) {
        session_.engine(lock).user().escape(id);
      }
    }
  };
  for_each_tensor(on_stack(), [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    for_each_description(tensor, keep);
  });
}

// Calls function(storage id, whether the tensor is integral) for all tensors of the session.
template <class Function>
void OpCall::for_each_known(Arguments values, const EngineLock& lock, Function&& function) {
  for_each_tensor(values, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    const bool integral = is_plain(*tensor.unsafeGetTensorImpl()) &&
                          at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
    for_each_storage(session_.tensors(), tensor, [&](const c10::StorageImpl& storage) {
      if (const StorageId id = session_.storages(lock).find_known(storage); id.valid()) {
        function(id, integral);
      }
    });
  });
}

void OpCall::hold_arguments(const EngineLock& lock) {
  if (framed_) [[unlikely]] {
    for_each_known(operands_.arguments(), lock, [&](StorageId storage, bool integral) {
      KernelFrame::hold_in_all(session_, storage, integral, false, lock);
    });
  }
}

void OpCall::hold_results() {
  if (framed_) [[unlikely]] {
    const EngineLock lock(session_.mutex());
    const bool made_in_opaque = KernelFrame::in_opaque();
    for_each_known(on_stack(), lock, [&](StorageId storage, bool integral) {
      KernelFrame::hold_in_all(session_, storage, integral, made_in_opaque, lock);
    });
  }
}

}  // namespace recoup::detail
