// Work on a stream that runs a CPU kernel on the bytes of the device.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/cuda_stand_in/kernels/shadowed_op.h"
#include "tests/cuda_stand_in/kernels/twins.h"

namespace recoup::stand_in {
namespace {

using torch::jit::peek;
using torch::jit::Stack;

struct Failures {
  std::mutex mutex;
  std::map<std::string, int> counts;  // by description
};

Failures& all_failures() {
  static Failures* const made = new Failures;
  return *made;
}

void add_failure(const ShadowedOp& op, const std::string& text) {
  const std::lock_guard lock(all_failures().mutex);
  ++all_failures().counts[op.name + ": " + text.substr(0, text.find('\n'))];
}

// The content of an argument before the op writes it: PyTorch's kernel may fill it, or copy into
// it, before the CPU kernel reads it.
struct Saved {
  StandInUse use;
  std::vector<char> bytes;
};
using SavedArguments = std::shared_ptr<std::vector<Saved>>;

struct Work {
  const ShadowedOp* op;
  c10::OperatorHandle handle;
  std::optional<DrawState> draws;
  TwinMemory memory;
  Stack arguments;  // twins
  // twins of the results of PyTorch's kernel; undefined if a result has none
  std::vector<at::Tensor> results;
  SavedArguments saved;
};

void put_result(const ShadowedOp& op, at::Tensor& out, const at::Tensor& result) {
  if (!out.defined() || !result.defined() ||
      result.unsafeGetTensorImpl() == out.unsafeGetTensorImpl()) {
    return;
  }
  if (result.numel() == 0) {
    return;  // the CPU kernel has no such result, such as batch norm's saved mean in evaluation
  }
  if (result.sizes() != out.sizes()) {
    add_failure(op, "the CPU's result has another shape");
  } else if (!result.is_alias_of(out) || result.const_data_ptr() != out.const_data_ptr()) {
    out.copy_(result);
  }
}

void run(Work& work) {
  for (const Saved& saved : *work.saved) {
    std::memcpy(stand_in_bytes(saved.use.memory), saved.bytes.data(), saved.use.size);
  }
  Stack stack = work.arguments;
  run_on_cpu(*work.op, work.handle, stack, work.draws ? work.draws->seed_on_cpu() : 0);
  std::size_t next = 0;
  for (const c10::IValue& value : stack) {
    for_each_tensor(value, [&](const at::Tensor& result) {
      if (next < work.results.size()) {
        put_result(*work.op, work.results[next++], result);
      }
    });
  }
}

void run_work(void* given) {
  Work& work = *static_cast<Work*>(given);
  for (const StandInUse& use : work.memory.uses) {
    if (stand_in_accessible(use.memory, use.size) == 0) {
      stand_in_illegal(work.op->name.c_str(), use.memory, use.size);
      return;
    }
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
  try {
    run(work);
  } catch (const std::exception& error) {
    add_failure(*work.op, error.what());
  }
}

void save(void* given) {
  for (Saved& saved : **static_cast<SavedArguments*>(given)) {
    if (stand_in_accessible(saved.use.memory, saved.use.size) != 0) {
      std::memcpy(saved.bytes.data(), stand_in_bytes(saved.use.memory), saved.use.size);
    }
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

SavedArguments save_arguments(const ShadowedOp& op, const c10::OperatorHandle& handle,
                              Stack& stack) {
  auto saved = std::make_shared<std::vector<Saved>>();
  const std::vector<c10::Argument>& arguments = handle.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(arguments[i])) {
      continue;
    }
    for_each_tensor(peek(stack, i, arguments.size()), [&](const at::Tensor& tensor) {
      if (on_cuda(tensor) && tensor.numel() > 0) {
        tensor.storage()
            .unsafeGetStorageImpl()
            ->mutable_data();  // triggers a pending copy on write
        if (!arguments[i].is_out()) {
          const StandInUse use = bytes_used(tensor, false);
          saved->push_back({.use = use, .bytes = std::vector<char>(use.size)});
        }
      }
    });
  }
  if (!saved->empty()) {
    stand_in_launch(
        c10::cuda::getCurrentCUDAStream().stream(), &save, new SavedArguments(saved),
        [](void* gone) { delete static_cast<SavedArguments*>(gone); }, op.name.c_str(), nullptr, 0);
  }
  return saved;
}

thread_local int depth = 0;

class Nested {
 public:
  Nested() { ++depth; }
  ~Nested() { --depth; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
};

}  // namespace

bool is_nested() { return depth > 0; }

void run_late(const ShadowedOp& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
              Stack* stack) {
  const std::vector<c10::Argument>& arguments = handle.schema().arguments();
  auto work = std::make_unique<Work>(Work{.op = &op,
                                          .handle = handle,
                                          .draws = draw_state(op, handle, *stack),
                                          .memory = {},
                                          .arguments = {},
                                          .results = {},
                                          .saved = save_arguments(op, handle, *stack)});
  if (work->draws && work->draws->seed_memory != nullptr) {
    for (const void* const memory : {work->draws->seed_memory, work->draws->offset_memory}) {
      work->memory.uses.push_back({.memory = memory, .size = sizeof(std::uint64_t), .write = 0});
    }
  }
  const Stack given(stack->end() - static_cast<std::ptrdiff_t>(arguments.size()), stack->end());
  {
    const Nested nested;
    op.kernel.callBoxed(handle, keys, stack);
  }
  // Twins of the arguments in their current state: results may have been resized.
  std::unordered_map<c10::TensorImpl*, at::Tensor> twins;
  for (std::size_t i = 0; i < given.size(); ++i) {
    c10::IValue twin = twin_of(work->memory, given[i], is_written(arguments[i]));
    if (given[i].isTensor() && given[i].toTensor().defined()) {
      twins[given[i].toTensor().unsafeGetTensorImpl()] = twin.toTensor();
    }
    work->arguments.push_back(std::move(twin));
  }
  const std::size_t results = handle.schema().returns().size();
  for (std::size_t i = 0; i < results; ++i) {
    for_each_tensor(peek(*stack, i, results), [&](const at::Tensor& tensor) {
      if (!on_cuda(tensor) || tensor.layout() != at::kStrided) {
        work->results.emplace_back();
        return;
      }
      const auto known = twins.find(tensor.unsafeGetTensorImpl());
      work->results.push_back(known != twins.end() ? known->second
                                                   : twin_of(work->memory, tensor, true));
    });
  }
  const std::vector<StandInUse> uses = work->memory.uses;
  stand_in_launch(
      c10::cuda::getCurrentCUDAStream().stream(), &run_work, work.release(),
      [](void* gone) { delete static_cast<Work*>(gone); }, op.name.c_str(), uses.data(),
      uses.size());
}

std::string failures() {
  const std::lock_guard lock(all_failures().mutex);
  std::string text;
  for (const auto& [what, count] : all_failures().counts) {
    text += std::to_string(count) + " " + what + "\n";
  }
  return text;
}

}  // namespace recoup::stand_in
