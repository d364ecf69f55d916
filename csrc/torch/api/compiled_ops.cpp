#include "csrc/torch/api/compiled_ops.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/calls/dispatch.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/ops/compiled_frame.h"
#include "csrc/torch/ops/overrides.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits_table.h"
#include "csrc/torch/session/sessions.h"

namespace recoup {
namespace detail {
namespace {

std::vector<at::Tensor> run_call(torch::jit::Stack* stack, bool as_one_op) {
  const std::vector<at::Tensor> written = torch::jit::pop(*stack).toTensorVector();
  const std::vector<at::Tensor> read = torch::jit::pop(*stack).toTensorVector();
  const auto held = torch::jit::pop(*stack).toCapsule();
  auto& call = static_cast<CompiledCall&>(*held);
  if (!as_one_op) {
    return call.run(read, written);
  }
  CompiledFrame frame(call);  // not const: it stores failures
  try {
    return call.run(read, written);
  } catch (const std::exception& error) {
    frame.rethrow_if(error.what());
    throw;
  }
}

void run_as_op(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  torch::jit::push(*stack, run_call(stack, true));
}

void run_as_opaque(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  torch::jit::push(*stack, run_call(stack, false));
}

c10::OperatorHandle op_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// The backend key of the tensors' device; the kernels are the same for all backends.
c10::DispatchKeySet keys_for(const std::vector<at::Tensor>& read,
                             const std::vector<at::Tensor>& written) {
  const std::vector<at::Tensor>& some = read.empty() ? written : read;
  return c10::DispatchKeySet(
      backend_type(some.empty() ? c10::kCPU : some.front().device().type()).dense);
}

}  // namespace

void define_compiled_ops() {
  static auto* const library = [] {  // never destroyed, like PyTorch's own
    auto* const made =
        new torch::Library(torch::Library::FRAGMENT, "recoup", std::nullopt, __FILE__, __LINE__);
    // The kernel is registered for each backend: one for autograd would make the ops composite.
    const auto define = [made](const std::string& name, torch::CppFunction kernel) {
      made->def((name + "(Capsule call, Tensor[] read, Tensor(a!)[] written) -> Tensor[]").c_str());
      made->impl(name.c_str(),
                 torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, std::move(kernel)));
    };
    define("compiled", torch::CppFunction::makeFromBoxedFunction<&run_as_op>());
    define("compiled_opaque", torch::CppFunction::makeFromBoxedFunction<&run_as_opaque>());
    return made;
  }();
  (void)library;
}

}  // namespace detail

// Skips the keys above recoup's: code that watches ops there sees the graph's inner ops, as without
// recoup.
std::vector<at::Tensor> run_compiled(c10::intrusive_ptr<CompiledCall> call,
                                     const std::vector<at::Tensor>& read,
                                     const std::vector<at::Tensor>& written, CompiledAs as) {
  detail::define_compiled_ops();
  static const c10::OperatorHandle one = detail::op_named("recoup::compiled");
  static const c10::OperatorHandle opaque = detail::op_named("recoup::compiled_opaque");
  if (as == CompiledAs::kOnce) {
    call->set_once();
  }
  torch::jit::Stack stack;
  torch::jit::push(
      stack,
      c10::IValue::make_capsule(c10::intrusive_ptr<torch::CustomClassHolder>(std::move(call))),
      read, written);
  detail::handle(as == CompiledAs::kOpaque ? opaque : one, detail::keys_for(read, written), &stack);
  return torch::jit::pop(stack).toTensorVector();
}

bool watching() {
  return detail::Sessions::any() && detail::on_scope_thread() && !detail::inside_op();
}

bool is_foreign_op(const std::string& name, bool on_gpu) {
  const detail::Reach reach = on_gpu ? detail::Reach::kAll : detail::Reach::kHost;
  bool known = false;
  for (const c10::OperatorName& each : c10::Dispatcher::singleton().getAllOpNames()) {
    if (each.name != name) {
      continue;
    }
    if (const auto op = c10::Dispatcher::singleton().findSchema(each)) {
      known = true;
      if (detail::TraitsTable::instance().of(*op, reach).foreign) {
        return true;
      }
    }
  }
  return !known;
}

namespace {

// The address range of a tensor's storage; empty for a tensor without bytes or storage.
std::pair<std::uintptr_t, std::uintptr_t> memory_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return {0, 0};
  }
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const auto from = reinterpret_cast<std::uintptr_t>(storage._mutable_data_ptr_no_checks().get());
  return {from, from == 0 ? 0 : from + storage.nbytes()};
}

}  // namespace

bool share_memory(const std::vector<at::Tensor>& changed, const std::vector<at::Tensor>& others) {
  const auto share = [](const at::Tensor& one, const at::Tensor& other) {
    const auto [from, to] = memory_of(one);
    const auto [other_from, other_to] = memory_of(other);
    const bool same =
        one.has_storage() && other.has_storage() &&
        one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
    return same || std::max(from, other_from) < std::min(to, other_to);
  };
  for (std::size_t i = 0; i < changed.size(); ++i) {
    const auto shares = [&](const at::Tensor& other) { return share(changed[i], other); };
    if (std::any_of(others.begin(), others.end(), shares) ||
        std::any_of(changed.begin() + static_cast<std::ptrdiff_t>(i) + 1, changed.end(), shares)) {
      return true;
    }
  }
  return false;
}

at::Tensor copy_aside(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  return at::clone(tensor);
}

void copy_back(const at::Tensor& tensor, const at::Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  tensor.copy_(from);
}

}  // namespace recoup
