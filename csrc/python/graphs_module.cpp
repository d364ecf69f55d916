// CUDA graphs that are captured within a budget.
#include <memory>
#include <optional>
#include <utility>

#include "csrc/python/common.h"
#include "recoup/bindings.h"

namespace recoup {

void bind_graphs(py::module_& module) {
  py::class_<CapturedGraph>(module, "CapturedGraph", py::is_final())
      .def("close", [](CapturedGraph& self) { translated([&] { self.close(); }); })
      .def(
          "end",
          [](CapturedGraph& self, bool captured) { translated([&] { self.end(captured); }); },
          py::arg("captured"))
      .def("replay", [](CapturedGraph& self) { translated([&] { self.replay(); }); })
      .def("release", [](CapturedGraph& self) { translated([&] { self.release(); }); });
  module.def("launch_graph_from_outside", [] { translated([] { launch_graph_from_outside(); }); });
  module.def(
      "begin_capture",
      [](int device) {
        std::optional<std::unique_ptr<CapturedGraph>> begun;
        translated([&] {
          if (std::unique_ptr<CapturedGraph> graph = CapturedGraph::begin(device)) {
            begun = std::move(graph);
          }
        });
        return begun;
      },
      py::arg("device"));
}

}  // namespace recoup
