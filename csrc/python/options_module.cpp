// Options by name, as Python passes them.
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "csrc/engine/base/option_table.h"
#include "csrc/python/common.h"

namespace recoup {
namespace {

using detail::OptionCheck;
using detail::OptionRow;
using detail::OptionValue;

// Converts any integer, of NumPy too. One beyond 64 bits becomes -1 or infinity, out of all bounds.
OptionValue whole_number(const py::handle& given) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()));
  if (!number) {
    throw py::error_already_set();
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow <= 0) {
    return std::int64_t{overflow < 0 ? -1 : value};
  }
  const unsigned long long large = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::numeric_limits<double>::infinity();
  }
  return std::uint64_t{large};
}

// Throws type_error for a value whose type no option has.
OptionValue value_of(const py::handle& given) {
  const auto* const number = Py_TYPE(given.ptr())->tp_as_number;
  if (given.is_none()) {
    return {};
  }
  if (py::isinstance<py::str>(given)) {
    return given.cast<std::string>();
  }
  if (PyBool_Check(given.ptr()) != 0) {
    return given.cast<bool>();
  }
  if (PyIndex_Check(given.ptr()) != 0) {
    return whole_number(given);
  }
  if (number != nullptr && number->nb_float != nullptr) {
    return given.cast<double>();
  }
  if (py::isinstance<py::sequence>(given) && py::len(given) == 4) {
    return given.cast<std::array<double, 4>>();
  }
  throw py::type_error();
}

[[noreturn]] void refuse(const OptionRow& row, OptionCheck check, const py::handle& given) {
  const std::string must = std::string(row.name) + " must be " + row.allowed + "; got ";
  if (check == OptionCheck::kNotAllowed) {
    throw py::value_error(must + py::repr(given).cast<std::string>());
  }
  throw py::type_error(must + Py_TYPE(given.ptr())->tp_name + " " +
                       py::repr(given).cast<std::string>());
}

void set(Options& options, const OptionRow& row, const py::handle& given) {
  OptionCheck check = OptionCheck::kWrongType;
  try {
    check = row.set(options, value_of(given));
  } catch (const py::builtin_exception&) {  // its type is that of no option
  }
  if (check != OptionCheck::kGood) {
    refuse(row, check, given);
  }
}

Options make_options(const py::kwargs& given) {
  Options options;
  py::set unknown(given);
  for (const OptionRow& row : detail::option_rows()) {
    const py::str name(row.name.data(), row.name.size());
    if (given.contains(name)) {
      set(options, row, given[name]);
      unknown.attr("discard")(name);
    }
  }
  if (!unknown.empty()) {
    throw py::type_error("unknown options " + py::str(unknown).cast<std::string>());
  }
  return options;
}

py::dict as_dict(const Options& options) {
  py::dict dict;
  for (const OptionRow& row : detail::option_rows()) {
    dict[py::str(row.name.data(), row.name.size())] = py::cast(row.get(options));
  }
  return dict;
}

// (name, allowed values, default) of each option.
py::list option_table() {
  py::list table;
  for (const OptionRow& row : detail::option_rows()) {
    table.append(py::make_tuple(std::string(row.name), row.allowed, row.get(Options())));
  }
  return table;
}

}  // namespace

void bind_options(py::module_& module) {
  py::class_<Options>(module, "Options", py::is_final())
      .def(py::init(&make_options))
      .def("as_dict", &as_dict);
  module.def("options", &option_table);
}

}  // namespace recoup
