// Note [Observers of ops]
// Profilers (at::RecordFunction) read the address of every argument before an op begins, and of
// some results after it, long before recoup receives the op. An evicted tensor has no address, and
// reading it is an error elsewhere, since the reader would then read the bytes. Here it is no
// error: the address only serves as a name, and null will do. So recoup adds two observers, the
// first and the last of a thread, which allow the access and forbid it again. They are registered
// only while other observers are, since observers cost each op more than a small op takes.
#include <ATen/record_function.h>

#include <memory>
#include <vector>

#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/compat/storage_access.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/session/allocator.h"
#include "csrc/torch/session/sessions.h"
#include "csrc/torch/storages/storage_records.h"
#include "recoup/bindings.h"

namespace recoup {
namespace detail {
namespace {

// Evicted storages whose address this thread's observers may read.
thread_local std::vector<StoragePtr> allowed;

void allow(const c10::IValue* values, std::size_t count) {
  // Elsewhere no op will restore the bytes, so the access has to fail.
  if (!Sessions::any() || !on_scope_thread()) {
    return;
  }
  for_each_tensor(
      Arguments(values, count), [](const at::Tensor& tensor, std::size_t, std::int64_t) {
        if (!tensor.has_storage()) {
          return;
        }
        StoragePtr storage = StoragePtr::reclaim_copy(tensor.storage().unsafeGetStorageImpl());
        if (is_evicted(*storage)) {
          allow_access(*storage);
          allowed.push_back(std::move(storage));
        }
      });
}

void forbid() {
  std::vector<StoragePtr> storages;
  storages.swap(allowed);
  for (const StoragePtr& storage : storages) {
    if (is_evicted(*storage)) {
      storage->release_data_and_set_meta_custom_data_ptr_error_msg_(evicted_message());
    }
  }
}

std::unique_ptr<at::ObserverContext> first_at_start(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  allow(inputs.data(), inputs.size());
  return nullptr;
}

void first_at_end(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
  allow(function.outputs().data(), function.outputs().size());
}

std::unique_ptr<at::ObserverContext> last_at_start(const at::RecordFunction& /*function*/) {
  forbid();
  return nullptr;
}

void last_at_end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  forbid();
}

at::CallbackHandle first_callback = at::INVALID_CALLBACK_HANDLE;
thread_local at::CallbackHandle last_callback = at::INVALID_CALLBACK_HANDLE;

void remove(at::CallbackHandle& handle) {
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
}

}  // namespace
}  // namespace detail

// PyTorch calls global observers before thread-local ones, and each group in order of registration.
void let_observers_look(bool on) {
  detail::remove(detail::last_callback);
  if (!on) {
    detail::remove(detail::first_callback);
    detail::forbid();
    return;
  }
  if (detail::first_callback == at::INVALID_CALLBACK_HANDLE) {
    detail::first_callback = at::addGlobalCallback(
        at::RecordFunctionCallback(&detail::first_at_start, &detail::first_at_end)
            .needsInputs(true)
            .needsOutputs(true));
  }
  detail::last_callback = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&detail::last_at_start, &detail::last_at_end));
}

}  // namespace recoup
