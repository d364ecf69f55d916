// Calls of graphs that torch.compile made: see python/recoup/_patching/compiled.py.
#include <string>
#include <utility>
#include <vector>

#include "csrc/python/common.h"
#include "csrc/torch/api/compiled_ops.h"

namespace recoup {
namespace {

// Disables Dynamo on this thread. Otherwise it would compile the Python code of a call, also when a
// C++ op runs it, as in a replay at a graph break.
class WithoutDynamo {
 public:
  WithoutDynamo() : before_(set()(py::none())) {}
  ~WithoutDynamo() {
    try {
      set()(before_);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("recoup: Dynamo is reset");
    }
  }
  WithoutDynamo(const WithoutDynamo&) = delete;
  WithoutDynamo& operator=(const WithoutDynamo&) = delete;

 private:
  static const py::object& set() {
    // Never destroyed: the function is PyTorch's.
    static const auto* const function =
        new py::object(py::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame"));
    return *function;
  }
  const py::object before_;
};

// A call whose graph is a Python callable: function(read, written) returns a list of tensors.
class PythonCall final : public CompiledCall {
 public:
  explicit PythonCall(py::object function) : function_(std::move(function)) {}
  ~PythonCall() override {
    if (interpreter_runs()) {
      const py::gil_scoped_acquire gil;
      function_ = py::object();
    } else {
      (void)function_.release();  // leaked: the interpreter is gone
    }
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& read,
                              const std::vector<at::Tensor>& written) override {
    const py::gil_scoped_acquire gil;
    const WithoutDynamo not_compiled;
    return py::cast<std::vector<at::Tensor>>(function_(read, written));
  }

 private:
  py::object function_;
};

CompiledAs compiled_as(const std::string& how) {
  if (how == "op") {
    return CompiledAs::kOp;
  }
  if (how == "once") {
    return CompiledAs::kOnce;
  }
  if (how == "opaque") {
    return CompiledAs::kOpaque;
  }
  throw py::value_error("a compiled graph runs as 'op', 'once' or 'opaque'; got " + how);
}

}  // namespace

void bind_compiled(py::module_& module) {
  module.def(
      "run_compiled",
      [](py::object function, const std::vector<at::Tensor>& read,
         const std::vector<at::Tensor>& written, const std::string& how) {
        const CompiledAs as = compiled_as(how);
        auto call = c10::make_intrusive<PythonCall>(std::move(function));
        return translated([&] { return run_compiled(std::move(call), read, written, as); });
      },
      py::arg("function"), py::arg("read"), py::arg("written"), py::arg("how"));
  module.def("watching", &watching);
  module.def("share_memory", &share_memory, py::arg("changed"), py::arg("others"));
  module.def("is_foreign_op", &is_foreign_op, py::arg("name"), py::arg("on_gpu"));
  module.def(
      "copy_aside", [](const at::Tensor& t) { return translated([&] { return copy_aside(t); }); },
      py::arg("tensor"));
  module.def(
      "copy_back",
      [](const at::Tensor& t, const at::Tensor& from) { translated([&] { copy_back(t, from); }); },
      py::arg("tensor"), py::arg("source"));
}

}  // namespace recoup
