#include "csrc/torch/parts.h"

#include <algorithm>
#include <utility>

#include "csrc/torch/kernel_frame.h"
#include "csrc/torch/op_call.h"
#include "csrc/torch/operands.h"

namespace recoup::detail {
namespace {

// What it began is over: the turn, and the room that is held.
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

c10::IValue element(const c10::IValue& list, std::size_t index) {
  const auto tensors = list.toTensorList();
  c10::List<at::Tensor> one;
  if (!tensors.empty()) {
    one.push_back(tensors.get(index));
  }
  return one;
}

// Two of its tensors may be views of one storage.
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

PartedCall::PartedCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
                       c10::DispatchKeySet keys, torch::jit::Stack& stack)
    : session_(session),
      op_(op),
      traits_(traits),
      keys_(keys),
      stack_(stack),
      argument_count_(op.schema().arguments().size()),
      arguments_(stack.data() + (stack.size() - argument_count_), argument_count_) {}

bool PartedCall::run() {
  // What a kernel around it holds stays where it is: nothing is known of what will fit.
  const std::size_t count = session_.device().is_cpu() &&
                                    keys_.highestPriorityTypeId() == c10::DispatchKey::CPU &&
                                    !KernelFrame::any()
                                ? length()
                                : 0;
  if (count < 2 || !begin(count)) {
    return false;
  }
  const WhileInParts running(session_);
  for (std::size_t part = 0; part < count; ++part) {
    run_part(part);
  }
  torch::jit::drop(stack_, argument_count_);
  return true;
}

// A kernel checks lengths, devices and layouts before it begins: a call that may not pass is its.
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
  for_each_tensor(arguments_, [&](const at::Tensor& tensor, std::size_t, std::int64_t where) {
    named -= where >= 0 ? 1 : 0;  // those that are undefined are left
    even &= plain_storage(session_.tensors(), tensor) != nullptr;
  });
  return even && named == 0 ? length : 0;
}

Part PartedCall::describe(std::size_t part, const EngineLock& lock) const {
  Part described;
  const auto add = [&](const at::Tensor& tensor, std::size_t argument) {
    c10::StorageImpl& storage = *plain_storage(session_.tensors(), tensor);
    if (const StorageId id = session_.storages(lock).find(storage); id.valid()) {
      add_operand(described, id, ((traits_.writes >> argument) & 1U) != 0);
    }
    if (!tensor.is_contiguous()) {  // a kernel may put it in order first
      described.workspace =
          std::max(described.workspace, Bytes(static_cast<std::int64_t>(tensor.nbytes())));
    }
  };
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const c10::IValue& argument = arguments_[i];
    if (argument.isTensorList()) {
      if (const auto list = argument.toListRef(); !list.empty()) {
        add(list[part].toTensor(), i);
      }
    } else if (argument.isTensor() && argument.toTensor().defined()) {
      add(argument.toTensor(), i);
    }
  }
  return described;
}

bool PartedCall::begin(std::size_t count) {
  const EngineLock lock(session_.mutex());
  Turn turn(session_, lock);
  Engine& engine = session_.engine(lock);
  engine.set_running_op(traits_.name);
  std::vector<Part> parts;
  parts.reserve(count);
  for (std::size_t part = 0; part < count; ++part) {
    parts.push_back(describe(part, lock));
  }
  if (!engine.in_parts().begin(parts)) {
    return false;
  }
  turn.go_on();  // until all have run
  return true;
}

void PartedCall::run_part(std::size_t part) {
  torch::jit::Stack stack;
  stack.reserve(argument_count_);
  for (const c10::IValue& argument : arguments_) {
    stack.push_back(argument.isTensorList() ? element(argument, part) : argument);
  }
  OpCall(session_, op_, traits_, keys_, stack).run();
}

}  // namespace recoup::detail
