// Declarations that the binding files of the laboratory share.
#pragma once

#include <pybind11/pybind11.h>

#include <system_error>

#include "csrc/python/conversions.h"
#include "recoup/simulation.h"
#include "recoup/trace.h"

namespace recoup {

// Runs `function` without the interpreter's lock. An error of the file system becomes an OSError
// that names the file, and a bad trace a ValueError. pybind11 converts all other exceptions.
template <class Function>
auto translated(Function&& function) {
  try {
    const py::gil_scoped_release no_gil;
    return function();
  } catch (const std::system_error& error) {
    throw_os_error(error);
  } catch (const BadTrace& error) {
    throw py::value_error(error.what());
  }
}

// Without decisions, which SimulationResult does not contain.
py::dict dict_of(const SimulationResult& result);

void bind_trace(py::module_& module);
// Adds to the class of traces.
void bind_trace_edits(py::module_& module, py::class_<Trace>& trace);
void bind_layout(py::module_& module);
void bind_dtr(py::module_& module);
void bind_order(py::module_& module);

}  // namespace recoup
