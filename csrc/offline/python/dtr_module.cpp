// Bindings of the model of the DTR authors' simulator. Tensors are passed as ids.
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/offline/python/common.h"
#include "recoup/offline/dtr.h"

namespace recoup {
namespace {

// outputs: (bytes, index of the argument that it is a view of, or -1) each.
std::vector<std::uint32_t> add_dtr_op(
    DtrProgram& program, const std::string& name, std::int64_t cost_ns,
    const std::vector<std::uint32_t>& arguments,
    const std::vector<std::pair<std::int64_t, std::int32_t>>& outputs) {
  std::vector<DtrTensorId> read;
  for (const std::uint32_t argument : arguments) {
    read.emplace_back(argument);
  }
  std::vector<DtrOutput> made;
  for (const auto& [bytes, alias] : outputs) {
    made.push_back({.size = Bytes(bytes), .alias = alias});
  }
  std::vector<std::uint32_t> results;
  for (const DtrTensorId result :
       program.add_op(name, Nanoseconds(cost_ns), std::move(read), made)) {
    results.push_back(result.index());
  }
  return results;
}

}  // namespace

void bind_dtr(py::module_& module) {
  using Program = DtrProgram;
  const auto tensor = py::arg("tensor");
  py::class_<Program>(module, "DtrProgram", py::is_final())
      .def(py::init<>())
      .def(
          "add_constant",
          [](Program& self, std::int64_t size) { return self.add_constant(Bytes(size)).index(); },
          py::arg("size_bytes"))
      .def("add_op", &add_dtr_op, py::arg("name"), py::arg("cost_ns"), py::arg("arguments"),
           py::arg("outputs"))
      .def(
          "hold", [](Program& self, std::uint32_t id) { self.hold(DtrTensorId(id)); }, tensor)
      .def(
          "release", [](Program& self, std::uint32_t id) { self.release(DtrTensorId(id)); }, tensor)
      .def(
          "keep", [](Program& self, std::uint32_t id) { self.keep(DtrTensorId(id)); }, tensor)
      .def("op_count", &Program::op_count)
      .def("peak_bytes", [](const Program& self) { return self.peak().count(); })
      .def(
          "simulate",
          [](const Program& self, const std::string& policy, std::int64_t budget_bytes,
             double max_time_ratio) {
            return dict_of(translated(
                [&] { return simulate_dtr(self, policy, Bytes(budget_bytes), max_time_ratio); }));
          },
          py::kw_only(), py::arg("policy"), py::arg("budget_bytes"), py::arg("max_time_ratio"));
  module.def("dtr_policies", [] {
    std::vector<std::string> names;
    for (const DtrPolicyInfo& info : dtr_policies()) {
      names.emplace_back(info.name);
    }
    return names;
  });
}

}  // namespace recoup
