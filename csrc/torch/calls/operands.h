// The arguments of a call, and the distinct storages among them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Scalar.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/base/flat_map.h"
#include "csrc/engine/base/op.h"
#include "csrc/torch/compat/components.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/ops/traits.h"
#include "csrc/torch/storages/tensor_device.h"
#include "csrc/torch/storages/tensor_storages.h"

namespace recoup::detail {

// The number that Python's argument parser wrapped into a tensor of the CPU; none for other
// tensors.
std::optional<c10::Scalar> wrapped_number(const at::Tensor& tensor);
inline std::optional<c10::Scalar> number_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? wrapped_number(tensor) : std::nullopt;
}

inline c10::StorageImpl& impl_of(const Operand& operand) {
  return *static_cast<c10::StorageImpl*>(operand.owner);
}

// For a list, a copy that recoup owns: IValues share lists, some kernels change the list that they
// are given, and TorchScript passes lists that the program may change afterwards. Lists of tensors
// get the type that kernels expect.
c10::IValue own_copy(const c10::IValue& value);

// Whether the tensor is a plain tensor of a few elements on the CPU, while the device is a GPU: the
// seed of fused attention, an index.
bool is_small_on_cpu(const TensorDevice& device, const at::Tensor& tensor);

class Operands {
 public:
  // Up to this number, operands are searched linearly; beyond it, through a table.
  static constexpr std::size_t kFew = 32;

  // The arguments must outlive this object.
  Operands(const TensorDevice& device, const OpTraits& traits, c10::DispatchKeySet keys)
      : device_(device), traits_(traits), keys_(keys) {}
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  // Call once. `in_passing`: this call writes the arguments of traits.left_out in passing.
  void find(Arguments arguments, bool in_passing);

  // Sets Operand::overwritable: Note [Overwritable operands].
  void find_overwritable();

  // The operands. `owner` is the StorageImpl; `index` counts in the payload among inputs or among
  // written storages.
  [[nodiscard]] std::span<Operand> all() { return {operands_.data(), operands_.size()}; }
  [[nodiscard]] std::span<const Operand> all() const {
    return {operands_.data(), operands_.size()};
  }
  // The operand of a storage; null if there is none.
  [[nodiscard]] const Operand* of(const c10::StorageImpl* storage) const {
    if (places_) [[unlikely]] {
      const auto place = places_->find(key_of(storage));
      return place ? &operands_[place->index()] : nullptr;
    }
    for (const Operand& operand : operands_) {
      if (operand.owner == storage) {
        return &operand;
      }
    }
    return nullptr;
  }

  // The arguments as they were, since kernels consume the stack.
  [[nodiscard]] Arguments arguments() const {
    return Arguments(arguments_.data(), arguments_.size());
  }
  // Whether the op writes the argument.
  [[nodiscard]] bool writes(std::size_t argument) const { return has(traits_.writes, argument); }
  // Whether it is a small CPU tensor that an op on a GPU reads: it is kept with the op's record.
  [[nodiscard]] bool is_constant(const at::Tensor& tensor, std::size_t argument) const;
  // Whether a replay cannot rebuild an argument: it is on another device, or of an unknown kind.
  [[nodiscard]] bool foreign() const { return foreign_; }

 private:
  [[nodiscard]] static bool has(std::uint64_t mask, std::size_t argument) {
    return argument < 64 && ((mask >> argument) & 1U) != 0;
  }
  static std::int64_t key_of(const c10::StorageImpl* storage) {
    return reinterpret_cast<std::int64_t>(storage);
  }
  [[nodiscard]] Operand* known(const c10::StorageImpl* storage) {
    return const_cast<Operand*>(of(storage));
  }
  Operand& add(c10::StorageImpl* storage);
  void add_tensor(const at::Tensor& tensor, std::size_t argument);
  [[nodiscard]] bool is_readable_composite(const at::Tensor& tensor, std::size_t argument) const;
  void add_components(const at::Tensor& tensor, std::size_t argument, bool readable);
  void add_storage(const c10::Storage& storage);
  [[nodiscard]] c10::StorageImpl* bypassed_storage(const at::Tensor& tensor) const;

  const TensorDevice& device_;
  const OpTraits& traits_;
  const c10::DispatchKeySet keys_;
  bool in_passing_ = false;
  bool foreign_ = false;
  bool composite_ = false;  // an argument is not plain
  c10::SmallVector<Operand, 8> operands_;
  std::optional<FlatMap<Id<struct OperandTag>>> places_;  // by storage, if operands are many
  c10::SmallVector<c10::IValue, 12> arguments_;
  // The StorageImpl of each operand, held weakly. A kernel may give a tensor another storage, and
  // the schema need not declare it (aten::_cudnn_rnn_flatten_weight). The old storage is then freed
  // while the kernel runs, but its StorageImpl stays valid for the code that runs after the kernel.
  c10::SmallVector<c10::weak_intrusive_ptr<c10::StorageImpl>, 8> held_;
  // Storages of composite tensors, to which the kernel may give other ones.
  c10::SmallVector<c10::Storage, 0> components_;
};

}  // namespace recoup::detail
