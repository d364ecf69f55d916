// The tensors that a TorchScript object holds.
#include <torch/csrc/jit/api/object.h>

#include <unordered_set>
#include <vector>

#include "csrc/python/common.h"

namespace recoup {
namespace {

// The tensors of its attributes, including those in lists, tuples, dictionaries, script objects and
// modules.
std::vector<at::Tensor> tensors_of_script(const torch::jit::Object& object) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const void*> seen;  // objects may refer to each other
  c10::IValue(object._ivalue()).visit([&](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      tensors.push_back(value.toTensor());
    }
    return value.isObject() && !seen.insert(value.toObject().get()).second;
  });
  return tensors;
}

}  // namespace

void bind_scripts(py::module_& module) {
  module.def("tensors_of_script", &tensors_of_script, py::arg("object"));
}

}  // namespace recoup
