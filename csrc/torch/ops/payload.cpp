#include "csrc/torch/ops/payload.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>

#include "csrc/base/check.h"
#include "csrc/base/hash.h"
#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/backend/bypass.h"
#include "csrc/torch/compat/digest.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/compat/settings.h"
#include "csrc/torch/ops/compiled_call.h"
#include "csrc/torch/ops/draw_tape.h"
#include "csrc/torch/ops/draws.h"
#include "csrc/torch/ops/tick_clock.h"

namespace recoup::detail {
namespace {

// Excluded during a replay, even if the program has them on when the replay starts. Conjugate,
// Negative and ZeroTensor stay: nested calls of complex kernels rely on them. Autocast is as it was
// for the op's own calls (Settings): off for an op that autocast knows, on within one that it does
// not know.
const c10::DispatchKeySet& replay_excluded() {
  static const c10::DispatchKeySet keys =
      c10::autograd_dispatch_keyset_with_ADInplaceOrView |
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchVmapMode,
                           c10::DispatchKey::Batched, c10::DispatchKey::VmapMode,
                           c10::DispatchKey::FuncTorchGradWrapper,
                           c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                           c10::DispatchKey::Functionalize, c10::DispatchKey::Python,
                           c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PythonDispatcher,
                           c10::DispatchKey::PreDispatch, c10::DispatchKey::Tracer});
  return keys;
}

constexpr c10::DispatchKeySet kConjugateOrNegative{c10::DispatchKey::Conjugate,
                                                   c10::DispatchKey::Negative};

at::Tensor scratch(const TensorArgument& shape, const Payload& payload) {
  const Bypass bypass;
  const std::int64_t* const dims = payload.dims.data() + shape.dims_begin;
  return at::zeros({dims, shape.dim}, at::TensorOptions().dtype(shape.type).device(payload.device));
}

at::Tensor wrapped_scalar(const c10::Scalar& scalar) {
  const Bypass bypass;
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace

void Payload::count_memory() {
  const auto outside = [](const auto& vector, std::size_t inside) {
    return vector.capacity() > inside ? vector.capacity() * sizeof(vector[0]) : 0;
  };
  // A generator's state is counted in full for each op: sharing is rare, and the sum is never too
  // small.
  memory = sizeof(Payload) + outside(arguments, 6) + outside(tensors, 2) + outside(dims, 12) +
           outside(composites, 0) + outside(storage_bytes, 3) + outside(fresh_results, 2) +
           (random ? sizeof(SavedGenerator) : 0) +
           (traits->compiled ? compiled_call(arguments).draws().memory() : 0);
  for (const CompositeArgument& composite : composites) {
    memory += composite.shell ? composite.shell->heap_bytes() : 0;
  }
}

namespace {

// Hashes a sequence of numbers, only to tell kinds of ops apart.
class Mixer {
 public:
  void add(std::uint64_t word) { hash_ = hash_with(hash_, word); }
  void add(std::span<const std::int64_t> words) {
    for (const std::int64_t word : words) {
      add(static_cast<std::uint64_t>(word));
    }
  }
  // The content of objects is ignored: an op's cost hardly depends on it.
  void add(const c10::IValue& value) {
    add(static_cast<std::uint64_t>(value.isNone()));
    if (value.isInt()) {
      add(static_cast<std::uint64_t>(value.toInt()));
    } else if (value.isDouble()) {
      add(std::bit_cast<std::uint64_t>(value.toDouble()));
    } else if (value.isBool()) {
      add(static_cast<std::uint64_t>(value.toBool()));
    } else if (value.isString()) {
      add(std::hash<std::string_view>()(value.toStringRef()));
    } else if (value.isList()) {
      const auto elements = value.toListRef();
      add(std::uint64_t{elements.size()});
      for (const c10::IValue& element : elements) {
        add(element);
      }
    }
  }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0x100000001b3ULL;
};

}  // namespace

void Payload::find_cost_key(std::span<const std::int64_t> made) {
  Mixer mixer;
  mixer.add(reinterpret_cast<std::uintptr_t>(traits));
  mixer.add(static_cast<std::uint64_t>(at::get_num_threads()));
  for (const TensorArgument& each : tensors) {
    mixer.add(static_cast<std::uint64_t>(c10::typeMetaToScalarType(each.type)));
  }
  mixer.add(std::span<const std::int64_t>(dims.data(), dims.size()));
  mixer.add(made);
  for (const c10::IValue& argument : arguments) {
    mixer.add(argument);
  }
  cost_key = mixer.hash() | 1U;  // 0 means none
}

namespace {

// Whether a record may keep the value.
bool may_be_kept(const c10::IValue& value) {
  return !value.isTuple() && !value.isGenericDict() && !value.isPyObject() && !value.isFuture() &&
         !value.isAwait() && !value.isStorage();
}

// Whether destroying the value runs no code but the C library's.
bool is_harmless(const c10::IValue& value) { return !value.isPtrType() || value.isString(); }

}  // namespace

bool Payload::add_argument(const c10::IValue& argument) {
  if (argument.isGenerator() && is_gated(argument.toGenerator().device().type())) {
    arguments.emplace_back();
    return true;
  }
  arguments.push_back(argument);
  if (!argument.isList()) {
    harmless &= is_harmless(argument);
    return may_be_kept(argument);
  }
  bool kept = true;
  for (const c10::IValue& element : argument.toListRef()) {
    // In every schema a nested list is a list of numbers, so its elements need no check.
    harmless &= is_harmless(element);
    kept &= may_be_kept(element);
  }
  return kept;
}

void Payload::keep_constant(const at::Tensor& tensor) {
  const Unseen unseen;
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(replay_excluded());
  const Bypass bypass;
  arguments.back() = at::clone(tensor);
  harmless = false;
}

void Payload::clear() {
  random.reset();
  arguments.clear();
  tensors.clear();
  composites.clear();
  dims.clear();
  storage_bytes.clear();
  fresh_results.clear();
  coverage.reset();
  cost_key = 0;
  harmless = true;
}

c10::intrusive_ptr<c10::StorageImpl> storage_over(void* data, std::int64_t nbytes,
                                                  c10::Device device) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                               c10::DataPtr(data, device), nullptr, false);
}

TensorArgument& describe(const at::Tensor& tensor, std::size_t argument, std::int64_t element,
                         Payload& payload) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const c10::IntArrayRef sizes = impl->sizes();
  const c10::IntArrayRef strides = impl->strides();
  const std::size_t begin = payload.dims.size();
  TensorArgument& shape = payload.tensors.emplace_back();
  shape.argument = static_cast<std::uint16_t>(argument);
  shape.element = static_cast<std::int32_t>(element);
  shape.wrapped_number = impl->is_wrapped_number();
  if (impl->key_set().has_any(kConjugateOrNegative)) [[unlikely]] {
    shape.conjugate = tensor.is_conj();
    shape.negative = tensor.is_neg();
  }
  shape.requires_grad = impl->requires_grad();
  shape.type = impl->dtype();
  shape.offset = impl->storage_offset();
  shape.dims_begin = static_cast<std::uint32_t>(begin);
  shape.dim = static_cast<std::uint16_t>(sizes.size());
  payload.dims.resize_for_overwrite(begin + 2 * sizes.size());
  std::int64_t* const dims = payload.dims.data() + begin;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    dims[i] = sizes[i];
    dims[i + sizes.size()] = strides[i];
  }
  return shape;
}

at::Tensor tensor_over(const c10::intrusive_ptr<c10::StorageImpl>& storage,
                       const TensorArgument& shape, const Payload& payload) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(backend_type(storage->device_type()).dense),
      shape.type);
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const std::int64_t* const dims = payload.dims.data() + shape.dims_begin;
  impl->set_sizes_and_strides({dims, shape.dim}, {dims + shape.dim, shape.dim}, shape.offset);
  if (shape.wrapped_number) {
    impl->set_wrapped_number(true);
  }
  if (shape.conjugate) {
    impl->_set_conj(true);
  }
  if (shape.negative) {
    impl->_set_neg(true);
  }
  return tensor;
}

namespace {

void put_on_stack(at::Tensor tensor, std::size_t argument, std::int32_t element,
                  const Payload& payload, torch::jit::Stack& stack) {
  c10::IValue& slot = stack[argument];
  if (element < 0) {
    slot = std::move(tensor);
    return;
  }
  // Copies of a list share its elements: the payload's own list must not change.
  if (payload.arguments[argument].isTensorList()) {
    if (slot.is(payload.arguments[argument])) {
      slot = slot.toTensorList().copy();
    }
    slot.toTensorList().set(static_cast<std::size_t>(element), tensor);
  } else {
    if (slot.is(payload.arguments[argument])) {
      slot = slot.toOptionalTensorList().copy();
    }
    slot.toOptionalTensorList().set(static_cast<std::size_t>(element), tensor);
  }
}

// `parts`: those of all composite tensors, in order.
void put_composites(const Payload& payload, std::span<const at::Tensor> parts,
                    torch::jit::Stack& stack) {
  c10::SmallVector<at::Tensor, 2> rebuilt;
  for (const CompositeArgument& composite : payload.composites) {
    if (composite.shell) {
      const std::size_t count = composite.shell->part_count();
      rebuilt.push_back(composite.shell->rebuild(parts.first(count)));
      parts = parts.subspan(count);
    } else {
      rebuilt.push_back(rebuilt[composite.same_as]);
    }
    put_on_stack(rebuilt.back(), composite.argument, composite.element, payload, stack);
  }
}

}  // namespace

Nanoseconds run_again(const Payload& payload,
                      std::span<const c10::intrusive_ptr<c10::StorageImpl>> inputs,
                      std::span<const c10::intrusive_ptr<c10::StorageImpl>> written,
                      torch::jit::Stack& stack) {
  TORCH_CHECK(!payload.traits->unregistered.is_set(), "recoup: a tensor that ",
              payload.traits->name,
              " computed cannot be restored, because the op was unregistered. Keep its library "
              "registered as long as its results exist, or first call recoup.materialize on them");
  const SettingsGuard settings(*payload.settings, payload.device.type());
  const Unseen unseen;
  const c10::impl::ExcludeDispatchKeyGuard no_autograd(replay_excluded());
  const c10::intrusive_ptr<c10::StorageImpl> nothing = storage_over(nullptr, 0, payload.device);
  stack.assign(payload.arguments.begin(), payload.arguments.end());
  c10::SmallVector<at::Tensor, 0> parts;  // of composite tensors
  for (const TensorArgument& shape : payload.tensors) {
    c10::IValue tensor;
    switch (shape.source) {
      case Source::kInput:
        tensor = tensor_over(inputs[shape.index], shape, payload);
        break;
      case Source::kWritten:
        tensor = tensor_over(written[shape.index], shape, payload);
        break;
      case Source::kShape:
        tensor = tensor_over(nothing, shape, payload);
        break;
      case Source::kScratch:
        tensor = scratch(shape, payload);
        break;
      case Source::kScalar:
        tensor = wrapped_scalar(stack[shape.argument].toScalar());
        break;
    }
    if (shape.requires_grad && !payload.composites.empty()) [[unlikely]] {
      tensor.toTensor().unsafeGetTensorImpl()->set_requires_grad(true);
    }
    if (shape.composite >= 0) [[unlikely]] {
      parts.push_back(tensor.toTensor());
    } else {
      put_on_stack(tensor.toTensor(), shape.argument, shape.element, payload, stack);
    }
  }
  put_composites(payload, parts, stack);
  const TickClock::Ticks start = TickClock::now();
  if (payload.random) {
    draw_again(*payload.op, *payload.traits, payload.keys, payload.device, payload.random, stack);
  } else {
    Hook::proceed(*payload.op, payload.keys, &stack);
  }
  return TickClock::between(start, TickClock::now());
}

}  // namespace recoup::detail
