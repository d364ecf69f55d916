// Bindings with which Python reports the end of collectives.
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "csrc/python/common.h"
#include "recoup/bindings.h"

namespace recoup {

void bind_collectives(py::module_& module) {
  module.def(
      "waited",
      [](const py::object& work) {
        const auto* const waited_for = work.cast<const c10d::Work*>();
        translated([&] { waited(waited_for); });
      },
      py::arg("work"),
      "The work has been waited for: no thread uses the tensors of its collective any more.");
}

}  // namespace recoup
