// What the replay of a recorded op needs in addition to the bytes of its arguments.
//
// Only the shapes of the program's tensors are kept, not the tensors: a tensor would keep its
// storage alive, and the storage may hold another version by the time of the replay.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "csrc/torch/compat/components.h"
#include "csrc/torch/compat/generators.h"
#include "csrc/torch/ops/coverage.h"
#include "csrc/torch/ops/traits.h"
#include "recoup/types.h"

namespace recoup::detail {

class Settings;

using Arguments = c10::ArrayRef<c10::IValue>;

// Where a tensor argument's bytes come from in a replay.
enum class Source : std::uint8_t {
  kInput,    // the op's index-th input
  kWritten,  // the op's index-th written storage
  kShape,    // none: only its shape is read, or it has no bytes
  kScratch,  // a temporary zero tensor: written in passing, content irrelevant
  kScalar,   // a Python number that the argument parser wrapped; it is in Payload::arguments
};

struct TensorArgument {
  std::uint16_t argument = 0;  // index on the stack
  std::int32_t element = -1;   // index in the list; -1: not in a list
  std::uint32_t index = 0;     // see Source
  Source source = Source::kShape;
  bool wrapped_number = false;
  bool conjugate = false;
  bool negative = false;
  bool requires_grad = false;  // kernels of composite operands ask for it, others do not
  caffe2::TypeMeta type;
  std::int64_t offset = 0;
  std::uint32_t dims_begin = 0;  // index into Payload::dims: sizes, then strides
  std::uint16_t dim = 0;
  std::int32_t composite = -1;  // index in Payload::composites of the tensor that it is a part of
};

// A composite tensor argument. Its parts are in Payload::tensors, in their order.
struct CompositeArgument {
  std::uint16_t argument = 0;  // index on the stack
  std::int32_t element = -1;   // index in the list; -1: not in a list
  // None: an earlier argument is the same tensor, which some kernels ask for.
  std::optional<CompositeShell> shell;
  std::size_t same_as = 0;  // index of that one in Payload::composites
};

struct Payload {
  std::optional<c10::OperatorHandle> op;
  const OpTraits* traits = nullptr;
  c10::DispatchKeySet keys;
  const Settings* settings = nullptr;
  GeneratorState random;
  c10::Device device{c10::kCPU};
  // The arguments. A tensor is replaced by None, or by the number that it wraps; a list of tensors
  // by as many undefined tensors; a generator of the CPU by None, since a replay has its own. A
  // small CPU tensor that an op on a GPU takes is kept as a copy.
  c10::SmallVector<c10::IValue, 6> arguments;
  c10::SmallVector<TensorArgument, 2> tensors;
  std::vector<CompositeArgument> composites;
  c10::SmallVector<std::int64_t, 12> dims;
  c10::SmallVector<std::int64_t, 3> storage_bytes;  // of each distinct storage, inputs then written
  // For each fresh storage: index of the result tensor that is in it. Lists and composite tensors
  // count as the tensors in them.
  c10::SmallVector<std::uint32_t, 2> fresh_results;
  std::unique_ptr<Coverage> coverage;  // if Options::check_replays

  bool overwritable = false;  // Note [Overwritable operands]
  // Whether destroying the payload runs no code of the program or of PyTorch: `arguments` are
  // numbers, strings and lists of these. Other payloads are destroyed after the engine's lock is
  // released.
  bool harmless = true;
  std::size_t memory = 0;  // bytes that the payload takes, as counted by count_memory

  // Note [Costs are learned]. 0 on a GPU, where an op's time is known later.
  std::uint64_t cost_key = 0;
  // Computes it from what has been filled in so far. `made`: sizes of the results in bytes.
  void find_cost_key(std::span<const std::int64_t> made);

  void count_memory();
  // Appends an argument without tensors to `arguments`; a list only if it has no other owner.
  // Returns false for an object that a record must not keep: the program may change it, or it keeps
  // tensors of the program alive.
  [[nodiscard]] bool add_argument(const c10::IValue& argument);
  // Replaces the last argument by a copy of a CPU tensor's current content.
  void keep_constant(const at::Tensor& tensor);
  void clear();
};

// A tensor over the given storage's bytes, which it does not own.
at::Tensor tensor_over(const c10::intrusive_ptr<c10::StorageImpl>& storage,
                       const TensorArgument& shape, const Payload& payload);
c10::intrusive_ptr<c10::StorageImpl> storage_over(void* data, std::int64_t nbytes,
                                                  c10::Device device);

// Describes a tensor; appends to payload.tensors and payload.dims.
TensorArgument& describe(const at::Tensor& tensor, std::size_t argument, std::int64_t element,
                         Payload& payload);

// Calls visit(tensor, argument index, element index or -1) for every defined tensor argument;
// nested lists are flattened. `visit` must not change the stack.
template <class Function>
void for_each_tensor(Arguments values, Function&& visit);

// Runs the op on these storages (inputs first, then written) and leaves its results on `stack`.
// Returns how long its kernel took to run, or to be enqueued on a device.
Nanoseconds run_again(const Payload& payload,
                      std::span<const c10::intrusive_ptr<c10::StorageImpl>> inputs,
                      std::span<const c10::intrusive_ptr<c10::StorageImpl>> written,
                      torch::jit::Stack& stack);

template <class Function>
void for_each_tensor(Arguments values, Function&& visit) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& value = values[i];
    if (value.isTensor()) {
      if (const at::Tensor& tensor = value.toTensor(); tensor.defined()) {
        visit(tensor, i, std::int64_t{-1});
      }
    } else if (value.isList()) {
      std::int64_t element = 0;
      const auto list = value.toListRef();
      for (const c10::IValue& item : list) {
        if (item.isTensor() && item.toTensor().defined()) {
          visit(item.toTensor(), i, element);
        } else if (item.isList()) {
          for (const c10::IValue& inner : item.toListRef()) {
            if (inner.isTensor() && inner.toTensor().defined()) {
              visit(inner.toTensor(), i, std::int64_t{-2});  // nested too deep to be replayed
            }
          }
        } else if (!item.isTensor() && !item.isNone()) {
          break;  // a list of other elements
        }
        ++element;
      }
    }
  }
}

}  // namespace recoup::detail
