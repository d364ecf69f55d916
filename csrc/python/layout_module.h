// The static planners' face for Python.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace recoup {
void bind_layout(pybind11::module_& module);
}  // namespace recoup
