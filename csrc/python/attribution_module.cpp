// Attribution of memory and time to modules and lines, for Python: see
// python/recoup/_reporting/attribution.py.
#include <Python.h>
#include <frameobject.h>

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/python/common.h"
#include "recoup/torch.h"

namespace recoup {
namespace {

std::int64_t number(std::uint32_t index) {
  return index == Maker::kNone ? -1 : std::int64_t{index};
}

// The lines at which ops ran. Accessed under the interpreter's lock. The texts are kept for ever,
// since a code object may be gone when its line is requested.
struct Lines {
  std::vector<std::string> passed_over;  // folders of code that is not the program's
  std::unordered_map<PyCodeObject*, bool> is_program;
  std::map<std::pair<PyCodeObject*, int>, std::uint32_t> numbers;
  std::vector<std::string> texts;
};

Lines& lines() {
  static auto* const the_lines = new Lines;
  return *the_lines;
}

std::string text_of(PyObject* object) {
  const char* const text = PyUnicode_AsUTF8(object);
  if (text == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return text;
}

bool is_program(PyCodeObject* code) {
  const auto [found, is_new] = lines().is_program.try_emplace(code, true);
  if (is_new) {
    Py_INCREF(code);
    const std::string file = text_of(code->co_filename);
    for (const std::string& folder : lines().passed_over) {
      found->second &= file.rfind(folder, 0) != 0;
    }
  }
  return found->second;
}

std::uint32_t number_of(PyCodeObject* code, int line) {
  const auto [found, is_new] =
      lines().numbers.try_emplace({code, line}, static_cast<std::uint32_t>(lines().texts.size()));
  if (is_new) {
    lines().texts.push_back(text_of(code->co_filename) + ":" + std::to_string(line) + " (" +
                            text_of(code->co_name) + ")");
  }
  return found->second;
}

// The line of the innermost frame whose code is the program's.
std::uint32_t innermost_line() {
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    auto* const raw_code = reinterpret_cast<PyCodeObject*>(code.ptr());
    if (is_program(raw_code)) {
      return number_of(raw_code, PyFrame_GetLineNumber(raw));
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return Maker::kNone;
}

py::list maker_rows(const Attribution& attribution) {
  py::list rows;
  for (std::size_t i = 0; i < attribution.makers.size(); ++i) {
    const Maker& maker = attribution.makers[i];
    const MakerWork& work = attribution.work[i];
    py::dict row;
    row["op"] = maker.op;
    row["module"] = number(maker.module);
    row["line"] = number(maker.line);
    row["phase"] = static_cast<int>(maker.phase);
    row["ops"] = work.ops;
    row["op_ns"] = work.op_ns;
    row["replays"] = work.replays;
    row["replay_ns"] = work.replay_ns;
    row["evictions"] = work.evictions;
    row["evicted_bytes"] = work.evicted_bytes;
    rows.append(std::move(row));
  }
  return rows;
}

// (kind, start, cost, bytes, charged, maker, step) each.
py::list moment_rows(const std::vector<LiveMoment>& moments) {
  py::list rows;
  for (const LiveMoment& moment : moments) {
    rows.append(py::make_tuple(static_cast<int>(moment.kind), moment.start.count(),
                               moment.cost.count(), moment.size.count(), moment.charged.count(),
                               index_of(moment.maker), moment.step));
  }
  return rows;
}

// (at, bytes) each.
py::list line_rows(const std::vector<BytesAt>& line) {
  py::list rows;
  for (const BytesAt& each : line) {
    rows.append(py::make_tuple(each.at.count(), each.bytes.count()));
  }
  return rows;
}

// (kind, bytes, maker, name) each.
py::list holding_rows(const std::vector<Holding>& holdings) {
  py::list rows;
  for (const Holding& holding : holdings) {
    rows.append(py::make_tuple(static_cast<int>(holding.kind), holding.size.count(),
                               index_of(holding.maker), index_of(holding.name)));
  }
  return rows;
}

py::dict step_dict(const LiveStep& step) {
  py::list spans;
  for (const Span& span : step.spans) {
    spans.append(py::make_tuple(span.begin.count(), span.end.count(), span.size.count(),
                                index_of(span.maker), index_of(span.name), span.source));
  }
  py::dict dict;
  dict["name"] = step.name;
  dict["number"] = step.number;
  dict["begin_ns"] = step.begin.count();
  dict["end_ns"] = step.end.count();
  dict["budget_bytes"] = step.budget.count();
  dict["spans"] = std::move(spans);
  dict["charged"] = line_rows(step.charged);
  dict["budgets"] = line_rows(step.budgets);
  dict["moments"] = moment_rows(step.moments);
  dict["cut"] = step.cut;
  return dict;
}

py::dict refusal_dict(const Refusal& refusal) {
  py::dict dict;
  dict["asked_bytes"] = refusal.report.asked.count();
  dict["non_recomputable_bytes"] = refusal.report.non_recomputable.count();
  dict["pinned_bytes"] = refusal.report.pinned.count();
  dict["evictable_bytes"] = refusal.report.evictable.count();
  dict["maker"] = index_of(refusal.maker);
  dict["charged_bytes"] = refusal.charged.count();
  dict["holdings"] = holding_rows(refusal.holdings);
  dict["step"] = refusal.step ? py::object(step_dict(*refusal.step)) : py::none();
  return dict;
}

}  // namespace

std::uint32_t program_line() {
  if (!interpreter_runs()) {
    return Maker::kNone;
  }
  const py::gil_scoped_acquire gil;
  return innermost_line();
}

const std::string& line_text(LineId line) { return lines().texts.at(line.index()); }

py::dict dict_of(const Attribution& attribution) {
  py::dict dict;
  dict["makers"] = maker_rows(attribution);
  dict["peak_bytes"] = attribution.peak.count();
  dict["holdings"] = holding_rows(attribution.holdings);
  dict["refusal"] =
      attribution.refusal ? py::object(refusal_dict(*attribution.refusal)) : py::none();
  dict["step"] = attribution.step ? py::object(step_dict(*attribution.step)) : py::none();
  dict["moments"] = moment_rows(attribution.moments);
  return dict;
}

void bind_attribution(py::module_& module) {
  module.def("enter_module", &enter_module, py::arg("module"), py::arg("optimizer") = false);
  module.def("leave_module", &leave_module, py::arg("depth"));
  module.def(
      "pass_over_lines",
      [](std::vector<std::string> folders) { lines().passed_over = std::move(folders); },
      py::arg("folders"));
  module.def("program_lines", [] { return lines().texts; });
}

}  // namespace recoup
