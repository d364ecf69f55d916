// Conversions to Python that the modules of the runtime and of the laboratory share.
#pragma once

#include <pybind11/pybind11.h>

#include <system_error>
#include <vector>

#include "recoup/decision.h"
#include "recoup/stats.h"

namespace recoup {

namespace py = pybind11;

[[noreturn]] void throw_os_error(const std::system_error& error);
py::dict dict_of(const Stats& stats);
// (kind, what, where) each.
py::list rows_of(const std::vector<Decision>& decisions);

}  // namespace recoup
