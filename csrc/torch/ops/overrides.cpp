#include "csrc/torch/ops/overrides.h"

#include <algorithm>
#include <string>

#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/backend/backends.h"

namespace recoup::detail {
namespace {

// "registered at /.../build/aten/src/ATen/RegisterCPU_0.cpp:3387".
std::string origin_of(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasComputedKernelForDispatchKey(key) ? op.getComputedKernelForDispatchKey(key).debug()
                                                 : std::string();
}

// "registered at /.../", the tree of PyTorch's sources.
const std::string& tree() {
  static const std::string found = [] {
    const auto empty =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format");
    std::string origin = origin_of(empty, c10::DispatchKey::CPU);
    for (const char* const part : {"aten/src/ATen/", "build/"}) {
      if (const std::size_t at = origin.rfind(part); at != std::string::npos) {
        origin.resize(at);
      }
    }
    return origin;
  }();
  return found;
}

}  // namespace

bool is_overridden(const c10::OperatorHandle& op, Reach reach) {
  const auto is_anothers = [&](c10::DispatchKey key) {
    const std::string origin = origin_of(op, key);
    return !origin.empty() && origin.rfind(tree(), 0) != 0;
  };
  const auto is_any_anothers = [&](c10::DeviceType type) {
    const auto kernels = backend_type(type).kernels;
    return std::any_of(kernels.begin(), kernels.end(), is_anothers);
  };
  return is_any_anothers(c10::kCPU) ||
         (reach == Reach::kAll && is_any_anothers(accelerator().value_or(c10::kCUDA)));
}

bool is_of_torch(const c10::OperatorHandle& op) {
  return origin_of(op, c10::DispatchKey::CPU).rfind(tree(), 0) == 0;
}

std::vector<std::string> overridden_ops() {
  std::vector<std::string> names;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && name.name.rfind("aten::", 0) == 0 && is_overridden(*op, Reach::kAll)) {
      names.push_back(c10::toString(name));
    }
  }
  return names;
}

}  // namespace recoup::detail
