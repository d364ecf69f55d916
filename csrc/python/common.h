// Declarations that the binding files share.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "csrc/python/conversions.h"
#include "recoup/attribution.h"
#include "recoup/errors.h"
#include "recoup/options.h"
#include "recoup/torch.h"

namespace recoup {

// Whether code of Python may run. The function is public since Python 3.13.
inline bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030d0000
  const bool ends = Py_IsFinalizing() != 0;
#else
  const bool ends = _Py_IsFinalizing() != 0;
#endif
  return Py_IsInitialized() != 0 && !ends;
}

[[noreturn]] void throw_python(const OutOfBudgetReport& report);

// Runs `function` without the interpreter's lock, and converts its exceptions to Python's.
template <class Function>
auto translated(Function&& function) {
  try {
    const py::gil_scoped_release no_gil;
    return function();
  } catch (const OutOfBudget& error) {
    throw_python(error.report());
  } catch (const std::invalid_argument& error) {
    throw py::value_error(error.what());
  }
}

// As translated(); errors of the file system become an OSError that names the file.
template <class Function>
auto os_errors(Function&& function) {
  try {
    return translated(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    throw_os_error(error);
  }
}

py::dict dict_of(const Attribution& attribution);
// The program's current line on this thread, as an index into program_lines.
std::uint32_t program_line();
// The text of a line: "file:line (function)".
const std::string& line_text(LineId line);
// -1 for an invalid id.
template <class Tag>
std::int64_t index_of(Id<Tag> id) {
  return id.valid() ? std::int64_t{id.index()} : -1;
}

void bind_options(py::module_& module);
void bind_scope(py::module_& module);
void bind_compiled(py::module_& module);
void bind_attribution(py::module_& module);
void bind_scripts(py::module_& module);
void bind_collectives(py::module_& module);
void bind_graphs(py::module_& module);
// Adds to the class of budgets.
void bind_share(py::class_<Budget>& budget);

}  // namespace recoup
