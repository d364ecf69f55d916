// What a recorded op needs to run again, apart from the bytes of its arguments.
//
// No at::Tensor of the program is kept, only its shape: keeping one would keep its storage alive,
// and the storage may by then hold another version.
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
  kShape,    // nowhere: only its shape is looked at, or it has no bytes
  kScratch,  // a throw-away zero tensor: written in passing, content irrelevant
  kScalar,   // a Python number that the argument parser wrapped; it is among Payload::arguments
};

struct TensorArgument {
  std::uint16_t argument = 0;  // index on the stack
  std::int32_t element = -1;   // index in the list, -1: not in a list
  std::uint16_t index = 0;     // see Source
  Source source = Source::kShape;
  bool wrapped_number = false;
  bool conjugate = false;
  bool negative = false;
  caffe2::TypeMeta type;
  std::int64_t offset = 0;
  std::uint32_t dims_begin = 0;  // in Payload::dims: sizes, then strides
  std::uint16_t dim = 0;
};

struct Payload {
  std::optional<c10::OperatorHandle> op;
  const OpTraits* traits = nullptr;
  c10::DispatchKeySet keys;
  const Settings* settings = nullptr;
  GeneratorState random;
  c10::Device device{c10::kCPU};
  // The arguments; tensors are left out (None, or the number that is wrapped in one), lists of
  // tensors are empty lists of the right length, and a generator of the CPU is None: a replay has
  // its own. A few bytes on the CPU that an op on a GPU takes are there, as a tensor of our own.
  c10::SmallVector<c10::IValue, 6> arguments;
  c10::SmallVector<TensorArgument, 2> tensors;
  c10::SmallVector<std::int64_t, 12> dims;
  c10::SmallVector<std::int64_t, 3> storage_bytes;  // of each distinct storage, inputs then written
  // For each fresh storage: which tensor of the results (lists flattened) is in it.
  c10::SmallVector<std::uint16_t, 2> fresh_results;
  std::unique_ptr<Coverage> coverage;  // in verify mode

  // Destroying it runs no code of the program's or of PyTorch's: `arguments` are numbers, strings
  // and lists of these. Any other payload is destroyed after the engine's lock has been given up.
  bool harmless = true;
  std::size_t memory = 0;  // that it takes, as count_memory found it

  // Note [Costs are learned]. 0 on a GPU, where the time of an op comes later.
  std::uint64_t cost_key = 0;
  // Of what there is by now; `made`: bytes of the results.
  void find_cost_key(std::span<const std::int64_t> made);

  void count_memory();
  // Appends to `arguments` one that holds no tensor, a list only if no other holds it. Returns
  // false for an object that a record cannot keep: the program may change it, or it keeps tensors
  // of the program alive.
  [[nodiscard]] bool add_argument(const c10::IValue& argument);
  // A tensor on the CPU as it is now, in the place of the last argument.
  void keep_constant(const at::Tensor& tensor);
  void clear();
};

// The key of a device's kernels for dense tensors.
c10::DispatchKey dense_key(c10::DeviceType type);

// A tensor over bytes that are already there; owns nothing.
at::Tensor tensor_over(const c10::intrusive_ptr<c10::StorageImpl>& storage,
                       const TensorArgument& shape, const Payload& payload);
c10::intrusive_ptr<c10::StorageImpl> storage_over(void* data, std::int64_t nbytes,
                                                  c10::Device device);

// Describes a tensor; appends to payload.tensors and payload.dims.
TensorArgument& describe(const at::Tensor& tensor, std::size_t argument, std::int64_t element,
                         Payload& payload);

// Calls function(tensor, argument index, element index or -1) for every tensor argument that is
// defined; nested lists are flattened. `visit` must not change the stack.
template <class Function>
void for_each_tensor(Arguments values, Function&& visit);

// Runs the op on these storages (inputs first, then written) and leaves its results on `stack`.
// Returns how long its kernel took to run, or to be given to a device.
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
              visit(inner.toTensor(), i, std::int64_t{-2});  // too deep to be replayed
            }
          }
        } else if (!item.isTensor() && !item.isNone()) {
          break;  // a list of something else
        }
        ++element;
      }
    }
  }
}

}  // namespace recoup::detail
