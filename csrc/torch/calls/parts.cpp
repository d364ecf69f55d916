#include "csrc/torch/calls/parts.h"

#include <algorithm>
#include <utility>

#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/calls/op_call.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/frames/kernel_frame.h"
#include "csrc/torch/storages/request.h"

namespace recoup::detail {
namespace {

// Ends at destruction what begin() began: the turn, and the reservation of room.
class WhileInParts {
 public:
  explicit WhileInParts(Session& session) : session_(session) {}
  ~WhileInParts() {
    const EngineLock lock(session_.mutex());
    session_.engine(lock).in_parts().end();
    session_.end_turn(lock);
  }
  WhileInParts(const WhileInParts&) = delete;
  WhileInParts& operator=(const WhileInParts&) = delete;

 private:
  Session& session_;
};

c10::IValue slice(const c10::IValue& list, std::size_t begin, std::size_t end) {
  const auto tensors = list.toTensorList();
  c10::List<at::Tensor> some;
  for (std::size_t i = begin; i < end && !tensors.empty(); ++i) {
    some.push_back(tensors.get(i));
  }
  return some;
}

// Merges tensors of a part that are views of one storage.
void add_operand(Part& part, StorageId storage, bool written) {
  const auto found = std::find_if(part.operands.begin(), part.operands.end(),
                                  [&](const PartOperand& each) { return each.storage == storage; });
  if (found == part.operands.end()) {
    part.operands.push_back({.storage = storage, .written = written});
  } else {
    found->written |= written;
  }
}

}  // namespace

bool PartedCall::run() {
  // A surrounding kernel's frame keeps everything in place, so it is unknown whether the parts will
  // fit.
  const bool by_device =
      call_.keys.highestPriorityTypeId() == backend_type(session_.device().type()).dense;
  if (!by_device || KernelFrame::any()) {
    return false;
  }
  cut(length());
  if (parts_.size() < 2 || !begin()) {
    return false;
  }
  const WhileInParts running(session_);
  for (const Range part : parts_) {
    run_part(part);
  }
  call_.clear_stack();
  return true;
}

Bytes PartedCall::bytes_at(std::size_t index) const {
  Bytes bytes{0};
  for (const c10::IValue& argument : arguments_) {
    if (argument.isTensorList() && !argument.toListRef().empty()) {
      const at::Tensor& tensor = argument.toListRef()[index].toTensor();
      bytes += Bytes(static_cast<std::int64_t>(tensor.nbytes()));
    }
  }
  return bytes;
}

void PartedCall::cut(std::size_t length) {
  const bool each = !session_.can().fused_lists;
  Bytes taken{0};
  for (std::size_t i = 0; i < length; ++i) {
    const Bytes bytes = each ? Bytes(0) : bytes_at(i);
    if (parts_.empty() || each || taken + bytes > kPartBytes ||
        i - parts_.back().begin == kPartTensors) {
      parts_.push_back({.begin = i, .end = i});
      taken = Bytes(0);
    }
    parts_.back().end = i + 1;
    taken += bytes;
  }
}

// Whether fused kernels accept the tensors of one list: they check all of them before they begin.
// A list of step counts has tensors of a shape of its own.
bool PartedCall::is_even(const c10::IValue& list) const {
  const auto tensors = list.toListRef();
  const auto first = std::find_if(arguments_.begin(), arguments_.end(), [](const auto& argument) {
    return argument.isTensorList() && !argument.toListRef().empty();
  });
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i].toTensor();
    const at::Tensor& leading = first->toListRef()[i].toTensor();
    const bool is_count = tensor.dim() == 0;
    if (tensor.scalar_type() != tensors[0].toTensor().scalar_type() ||
        !tensor.is_non_overlapping_and_dense() ||
        (!is_count &&
         (tensor.sizes() != leading.sizes() || tensor.strides() != leading.strides()))) {
      return false;
    }
  }
  return true;
}

// A kernel checks lengths, devices and layouts before it begins. A call that may fail a check is
// not cut.
std::size_t PartedCall::length() const {
  std::size_t length = 0;
  bool even = true;
  for (const c10::IValue& argument : arguments_) {
    if (argument.isTensorList()) {
      const std::size_t size = argument.toTensorList().size();
      even &= size == 0 || length == 0 || size == length;
      length = std::max(length, size);
    } else {
      even &= !argument.isList();
    }
  }
  std::size_t named = 0;
  for (const c10::IValue& argument : arguments_) {
    named += argument.isTensorList() ? argument.toTensorList().size() : 0;
  }
  for_each_tensor(arguments_,
                  [&](const at::Tensor& tensor, std::size_t argument, std::int64_t where) {
                    named -= where >= 0 ? 1 : 0;  // undefined tensors remain counted
                    even &= plain_storage(session_.tensors(), tensor) != nullptr ||
                            (where < 0 && is_scalar_of_host(tensor, argument));
                  });
  if (!even || named != 0) {
    return 0;
  }
  const bool uneven = session_.can().fused_lists &&
                      std::any_of(arguments_.begin(), arguments_.end(), [&](const auto& argument) {
                        return argument.isTensorList() && !is_even(argument);
                      });
  return uneven ? 0 : length;
}

// Whether it is a learning rate on the CPU, which a fused kernel reads when it is launched.
bool PartedCall::is_scalar_of_host(const at::Tensor& tensor, std::size_t argument) const {
  return session_.can().fused_lists && tensor.is_cpu() && tensor.numel() == 1 &&
         ((call_.traits.writes >> argument) & 1U) == 0;
}

Part PartedCall::describe(Range part, const EngineLock& lock) const {
  Part described;
  const auto add = [&](const at::Tensor& tensor, std::size_t argument) {
    c10::StorageImpl* const storage = plain_storage(session_.tensors(), tensor);
    if (storage == nullptr) {
      return;
    }
    if (const StorageId id = session_.storages(lock).find(*storage); id.valid()) {
      add_operand(described, id, ((call_.traits.writes >> argument) & 1U) != 0);
    }
    if (!session_.can().fused_lists &&
        !tensor.is_contiguous()) {  // a kernel may make a contiguous copy
      described.workspace =
          std::max(described.workspace, Bytes(static_cast<std::int64_t>(tensor.nbytes())));
    }
  };
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& argument = arguments_[i];
    if (argument.isTensorList()) {
      const auto list = argument.toListRef();
      for (std::size_t at = part.begin; at < part.end && !list.empty(); ++at) {
        add(list[at].toTensor(), i);
      }
    } else if (argument.isTensor() && argument.toTensor().defined()) {
      add(argument.toTensor(), i);
    }
  }
  return described;
}

bool PartedCall::begin() {
  const EngineLock lock(session_.mutex());
  Turn turn(session_, lock);
  Engine& engine = session_.engine(lock);
  const Request request(engine, session_.tensors().external(), call_.traits.name);
  std::vector<Part> parts;
  parts.reserve(parts_.size());
  for (const Range part : parts_) {
    parts.push_back(describe(part, lock));
  }
  if (!engine.in_parts().begin(parts)) {
    return false;
  }
  turn.go_on();  // until all parts have run
  return true;
}

void PartedCall::run_part(Range part) {
  torch::jit::Stack stack;
  stack.reserve(call_.argument_count);
  for (const c10::IValue& argument : arguments_) {
    stack.push_back(argument.isTensorList() ? slice(argument, part.begin, part.end) : argument);
  }
  OpCall(session_, Call(call_.op, call_.traits, call_.keys, stack)).run();
}

}  // namespace recoup::detail
