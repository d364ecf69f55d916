// The dispatcher entry: receives every op of the program, below autograd and above the kernels.
#include "csrc/torch/calls/dispatch.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/backend/backends.h"
#include "csrc/torch/calls/collective_call.h"
#include "csrc/torch/calls/op_call.h"
#include "csrc/torch/calls/parts.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/pointer_readers.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/frames/kernel_frame.h"
#include "csrc/torch/ops/compiled_frame.h"
#include "csrc/torch/ops/traits_table.h"
#include "csrc/torch/session/allocator.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"

namespace recoup::detail {
namespace {

void redispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Unseen unseen;
  Hook::proceed(op, keys, stack);
}

// A lazy clone shares its bytes with the original until one of them is written, outside any op, so
// the owner of the bytes would be unknown. Hence the bytes are copied at once, by ops that can be
// replayed.
void run_lazy_clone(torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor self = torch::jit::pop(*stack).toTensor();
  const auto count = static_cast<std::int64_t>(self.storage().nbytes()) / self.element_size();
  const at::Tensor all = at::as_strided(self, {count}, {1}, 0);
  torch::jit::push(
      *stack, at::as_strided(at::clone(all), self.sizes(), self.strides(), self.storage_offset()));
}

// Does nothing for an evicted tensor. Its bytes are used on no stream, and the new owner of their
// memory has waited for all earlier uses.
void run_record_stream(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                       torch::jit::Stack* stack) {
  const at::Tensor& self = torch::jit::peek(*stack, 0, 2).toTensor();
  if (self.has_storage() && is_evicted(*self.storage().unsafeGetStorageImpl())) {
    torch::jit::drop(*stack, 2);
    return;
  }
  redispatch(op, below, stack);
}

using Concerned = c10::SmallVector<Session*, 2>;

void add_concerned(Concerned& concerned, c10::Device device) {
  Session* const session = Sessions::on(with_index(device));
  if (session != nullptr &&
      std::find(concerned.begin(), concerned.end(), session) == concerned.end()) {
    concerned.push_back(session);
  }
}

// The sessions on whose devices the op has arguments or makes results. With budgets on accelerators
// an op may concern several sessions, or none.
Concerned concerned_by(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Concerned concerned;
  bool on_cpu = true;
  const std::size_t count = op.schema().arguments().size();
  const Arguments arguments(stack.data() + (stack.size() - count), count);
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) {
      on_cpu = false;
      add_concerned(concerned, argument.toDevice());
    } else if (argument.isStorage()) {
      add_concerned(concerned, argument.toStorage().device());
    }
  }
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    on_cpu = false;
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      add_concerned(concerned, tensor.device());
    }
  });
  if (on_cpu) {
    add_concerned(concerned, c10::Device(c10::kCPU));
  }
  return concerned;
}

// Calls function(sessions) with the sessions that the op concerns; there may be none.
template <class Function>
void with_concerned(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                    Function&& function) {
  if (Sessions::any_on_accelerators()) {
    const Concerned concerned = concerned_by(op, stack);
    function(std::span<Session* const>(concerned.data(), concerned.size()));
  } else if (Session* const session = Sessions::on_cpu()) {
    Session* const one[] = {session};
    function(std::span<Session* const>(one));
  } else {
    function(std::span<Session* const>());
  }
}

// Note [Opaque ops]. Without a turn: ops of other threads may run, and the kernel may wait for
// them.
void run_opaque(const c10::OperatorHandle& op, const OpTraits& traits, c10::DispatchKeySet below,
                torch::jit::Stack* stack) {
  KernelFrame frame(Pointers::kAny);
  {
    const Visit visit;
    with_concerned(op, *stack, [&](std::span<Session* const> sessions) {
      for (Session* const session : sessions) {
        session->land();
        OpCall(*session, Call(op, traits, below, *stack)).announce(frame);
      }
    });
  }
  if (traits.collective) {
    CollectiveCall collective(frame);
    Hook::proceed(op, below, stack);
    collective.returned(op, *stack);
  } else if (traits.waits) {
    const WaitCall wait(frame);
    Hook::proceed(op, below, stack);
    wait.returned();
  } else {
    Hook::proceed(op, below, stack);
  }
}

// Restores and holds plain tensors among the arguments for a kernel that reads them by pointer.
template <class Wanted>
void hold_arguments(KernelFrame& frame, const c10::OperatorHandle& op,
                    const torch::jit::Stack& stack, Wanted&& wanted) {
  const Visit visit;
  const std::size_t count = op.schema().arguments().size();
  const Arguments arguments(stack.data() + (stack.size() - count), count);
  for_each_tensor(arguments,
                  [&](const at::Tensor& tensor, std::size_t argument, std::int64_t /*element*/) {
                    Session* const session = Sessions::on(tensor.device());
                    if (session != nullptr && wanted(tensor, arguments[argument]) &&
                        is_plain(*tensor.unsafeGetTensorImpl())) {
                      frame.hold(*session, tensor);
                    }
                  });
}

// Note [Pointer readers].
void run_reader(const c10::OperatorHandle& op, const OpTraits& traits, c10::DispatchKeySet below,
                torch::jit::Stack* stack) {
  KernelFrame frame(traits.pointers);
  hold_arguments(frame, op, *stack, [&](const at::Tensor& tensor, const c10::IValue&) {
    return traits.pointers == Pointers::kArguments ||
           at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  });
  Hook::proceed(op, below, stack);
}

// Note [Ops on lists].
void run_list_loop(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                   torch::jit::Stack* stack) {
  const auto is_shared = [](const c10::IValue& argument) { return argument.isTensor(); };
  const std::size_t count = op.schema().arguments().size();
  std::optional<KernelFrame> frame;  // optional, since a frame costs time for the inner ops
  if (std::any_of(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end(), is_shared)) {
    frame.emplace(Pointers::kArguments);
    hold_arguments(*frame, op, *stack, [&](const at::Tensor&, const c10::IValue& argument) {
      return is_shared(argument);
    });
  }
  Hook::proceed(op, below, stack);
}

void run(const c10::OperatorHandle& op, const OpTraits& traits, c10::DispatchKeySet below,
         torch::jit::Stack* stack) {
  const Visit visit;
  with_concerned(op, *stack, [&](std::span<Session* const> sessions) {
    if (sessions.empty()) {
      redispatch(op, below, stack);
      return;
    }
    for (Session* const session : sessions) {
      session->land();
    }
    const Call call(op, traits, below, *stack);
    if (!traits.in_parts || sessions.size() != 1 || !PartedCall(*sessions.front(), call).run()) {
      OpCall(*sessions.front(), call, sessions.subspan(1)).run();
    }
  });
}

bool has_composite(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().defined() &&
        !is_plain(*stack[i].toTensor().unsafeGetTensorImpl()) &&
        kind_of(stack[i].toTensor()) == TensorKind::kComposite) {
      return true;
    }
  }
  return false;
}

}  // namespace

void handle(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack) {
  if (!Sessions::any()) {
    redispatch(op, below, stack);
    return;
  }
  if (CompiledFrame* const frame = CompiledFrame::current()) [[unlikely]] {
    frame->pass(op, below, stack);
    return;
  }
  const OpTraits& traits = TraitsTable::instance().of(op, reach_of(below));
  switch (traits.kind) {
    case OpKind::kTransparent:
      if (!has_composite(op, *stack)) [[likely]] {
        Hook::proceed(op, below, stack);
        return;
      }
      break;  // its kernel for these reads their sizes by pointer
    case OpKind::kView:
      if (!has_composite(op, *stack)) [[likely]] {
        redispatch(op, below, stack);
        return;
      }
      break;  // it reads the descriptions of their parts
    case OpKind::kLazyClone:
      run_lazy_clone(stack);
      return;
    case OpKind::kOtherStream:
      run_record_stream(op, below, stack);
      return;
    case OpKind::kRecorded:
    case OpKind::kOpaque:
    case OpKind::kReader:
    case OpKind::kListLoop:
      break;
  }
  try {
    if (traits.kind == OpKind::kOpaque) {
      run_opaque(op, traits, below, stack);
    } else if (traits.kind == OpKind::kReader) {
      run_reader(op, traits, below, stack);
    } else if (traits.kind == OpKind::kListLoop &&
               below.highestPriorityTypeId() == c10::DispatchKey::CPU) {
      run_list_loop(op, below, stack);
    } else {
      run(op, traits, below, stack);
    }
  } catch (const PoolOutOfMemory& error) {
    throw_out_of_budget(error.report());
  } catch (const OutOfBudget& error) {
    throw_out_of_budget(error.report());
  }
}

namespace {

// Note [Pointer readers]. Called with autograd's key among the call's keys. The composite kernel is
// the same for every backend, so the call goes on with a backend's key.
void enter(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet backend(backend_type_of(keys).dense);
  if (on_scope_thread() && !inside_op()) {
    handle(op, backend, stack);
  } else {
    op.redispatchBoxed(backend, stack);
  }
}

void enter_all(torch::Library& library) {
  for (const PointerReader& reader : pointer_readers()) {
    const std::string name(reader.op);
    // Names that this PyTorch lacks are skipped; a test reports stale names.
    const auto dot = name.find('.');
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload})) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&enter>());
    }
  }
}

}  // namespace

void watch_ops() {
  if (Hook::installed()) {
    return;
  }
  Hook::install(&handle);
  for (const BackendType& backend : kBackendTypes) {
    // Never destroyed, like PyTorch's own.
    auto* const library =
        new torch::Library(torch::Library::IMPL, "aten", backend.autograd, __FILE__, __LINE__);
    enter_all(*library);
  }
}

}  // namespace recoup::detail
