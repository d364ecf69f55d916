// The dispatcher entry: every op of the program passes here, below autograd and above the kernels.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <chrono>

#include "csrc/torch/errors.h"
#include "csrc/torch/op_call.h"
#include "csrc/torch/session.h"
#include "csrc/torch/traits.h"

namespace recoup::detail {
namespace {

void redispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  op.redispatchBoxed(keys, stack);
}

// Two storages that share their bytes until one of them is written, outside any op: who owns them
// then? So the bytes are copied at once, by ops that can be replayed.
void run_lazy_clone(torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor self = torch::jit::pop(*stack).toTensor();
  const auto count = static_cast<std::int64_t>(self.storage().nbytes()) / self.element_size();
  const at::Tensor all = at::as_strided(self, {count}, {1}, 0);
  torch::jit::push(
      *stack, at::as_strided(at::clone(all), self.sizes(), self.strides(), self.storage_offset()));
}

void handle(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
  Session* const session = Session::active();
  if (session == nullptr) {
    redispatch(op, below, stack);
    return;
  }
  const OpTraits& traits = TraitsTable::instance().of(op);
  switch (traits.kind) {
    case OpKind::kTransparent:
      op.redispatchBoxed(below, stack);
      return;
    case OpKind::kView:
      redispatch(op, below, stack);
      return;
    case OpKind::kLazyClone:
      run_lazy_clone(stack);
      return;
    case OpKind::kRecorded:
    case OpKind::kForeign:
      break;
  }
  try {
    OpCall(*session, op, traits, below, *stack).run();
  } catch (const PoolOutOfMemory& error) {
    throw_out_of_budget(error.report());
  } catch (const OutOfBudget& error) {
    throw_out_of_budget(error.report());
  }
}

}  // namespace
}  // namespace recoup::detail

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&recoup::detail::handle>());
}
