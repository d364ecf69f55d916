#include "csrc/torch/api/math_functions.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/stack.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <thread>

#include "csrc/torch/ops/overrides.h"
#include "recoup/bindings.h"

namespace recoup::detail {
namespace {

// Whether the op is a function of the elements of one tensor, with a kernel of its own.
bool is_math_function(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  return std::string_view(schema.name()).starts_with("aten::") && op.hasTag(at::Tag::pointwise) &&
         !op.hasTag(at::Tag::nondeterministic_seeded) && !schema.is_mutable() &&
         !arguments.empty() && arguments[0].type()->kind() == c10::TypeKind::TensorType &&
         std::all_of(arguments.begin() + 1, arguments.end(),
                     [](const c10::Argument& each) { return each.default_value().has_value(); }) &&
         is_of_torch(op);
}

void call(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  torch::jit::Stack stack{tensor};
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    stack.push_back(*arguments[i].default_value());
  }
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error&) {
    // The op is not defined for the type.
  }
}

std::vector<std::string> call_all() {
  std::vector<std::string> called;
  if (!at::hasMKL()) {
    return called;
  }
  constexpr double kDefined = 0.5;  // every function is defined there
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !is_math_function(*op)) {
      continue;
    }
    called.push_back(c10::toString(name));
    for (const c10::ScalarType type : {c10::kFloat, c10::kDouble}) {
      call(*op, at::full({1}, kDefined, at::TensorOptions(type).device(c10::kCPU)));
    }
  }
  return called;
}

}  // namespace

const std::vector<std::string>& choose_math_kernels() {
  // On a thread of its own, for which no mode of the program is on. PyTorch initializes each thread
  // at its first kernel, and a forked child relies on that: the caller's stays for the program.
  static const std::vector<std::string> called = [] {
    std::vector<std::string> names;
    try {
      std::thread([&names] { names = call_all(); }).join();
    } catch (const std::system_error&) {
      names = call_all();  // the system allows no more threads
    }
    return names;
  }();
  return called;
}

}  // namespace recoup::detail

namespace recoup {

std::vector<std::string> choose_math_kernels() { return detail::choose_math_kernels(); }

}  // namespace recoup
