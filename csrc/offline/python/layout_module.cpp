// Bindings of the static planners. Buffers and ops are passed as tuples: recoup.offline.layout has
// the types.
#include <pybind11/stl.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/offline/python/common.h"
#include "recoup/errors.h"
#include "recoup/offline/layout.h"

namespace recoup {
namespace {

// name, lower, upper, size, stream
using BufferRow = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int32_t>;
// name, step, reads, (output, input) of each in-place pair
using OpRow = std::tuple<std::string, std::int64_t, std::vector<std::uint32_t>,
                         std::vector<std::pair<std::uint32_t, std::uint32_t>>>;

// The number of buffers up to which every layout is checked pair by pair; beyond it, that takes
// seconds.
constexpr std::size_t kAlwaysChecked = 5000;

LayoutProblem problem_of(const std::vector<BufferRow>& buffers, const std::vector<OpRow>& ops) {
  LayoutProblem problem;
  for (const auto& [name, lower, upper, size, stream] : buffers) {
    problem.buffers.push_back(
        {.name = name, .lower = lower, .upper = upper, .size = Bytes(size), .stream = stream});
  }
  for (const auto& [name, step, reads, pairs] : ops) {
    LayoutOp& op =
        problem.ops.emplace_back(LayoutOp{.name = name, .step = step, .reads = {}, .in_place = {}});
    for (const std::uint32_t id : reads) {
      op.reads.emplace_back(id);
    }
    for (const auto& [output, input] : pairs) {
      op.in_place.push_back({.output = BufferId(output), .input = BufferId(input)});
    }
  }
  return problem;
}

py::dict dict_of(const Layout& layout, double seconds) {
  py::list offsets;
  for (const PoolOffset offset : layout.offsets) {
    offsets.append(offset.count());
  }
  py::list in_place;
  for (const BufferId id : layout.in_place) {
    in_place.append(id.valid() ? py::cast(id.index()) : py::none());
  }
  py::dict dict;
  dict["planner"] = layout.planner;
  dict["offsets"] = offsets;
  dict["in_place"] = in_place;
  dict["size_bytes"] = layout.size.count();
  dict["bound_bytes"] = layout.bound.count();
  dict["least_bytes"] = layout.least.count();
  dict["sum_bytes"] = layout.sum.count();
  dict["optimal"] = layout.optimal;
  dict["nodes"] = layout.nodes;
  dict["seconds"] = seconds;
  return dict;
}

py::dict plan(const std::vector<BufferRow>& buffers, const std::vector<OpRow>& ops,
              const std::string& planner, std::optional<std::int64_t> capacity_bytes,
              std::int64_t alignment_bytes, double time_limit_s, std::int64_t node_limit,
              const std::vector<std::string>& disable_inplace_ops, bool check) {
  LayoutOptions options;
  options.alignment = Bytes(alignment_bytes);
  options.capacity = capacity_bytes ? std::optional(Bytes(*capacity_bytes)) : std::nullopt;
  options.time_limit = std::chrono::duration<double>(time_limit_s);
  options.node_limit = node_limit;
  options.disable_inplace_ops = disable_inplace_ops;
  Layout layout;
  double seconds = 0;
  {
    const py::gil_scoped_release no_gil;
    const LayoutProblem problem = problem_of(buffers, ops);
    const auto begin = std::chrono::steady_clock::now();
    layout = plan_layout(problem, planner, options);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!layout.offsets.empty() && (check || buffers.size() <= kAlwaysChecked)) {
      const std::string fault = check_layout(problem, layout, options);
      if (!fault.empty()) {
        throw InternalError("recoup: internal error, please report it: " + fault);
      }
    }
  }
  return dict_of(layout, seconds);
}

std::vector<BufferRow> read_csv(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    throw py::error_already_set();
  }
  std::vector<BufferRow> rows;
  for (const LayoutBuffer& buffer : read_layout_csv(file, path).buffers) {
    rows.emplace_back(buffer.name, buffer.lower, buffer.upper, buffer.size.count(), buffer.stream);
  }
  return rows;
}

}  // namespace

void bind_layout(py::module_& module) {
  module.def("layout_planners", [] {
    std::vector<std::tuple<std::string, std::string, bool>> rows;
    for (const PlannerInfo& info : planners()) {
      rows.emplace_back(info.name, info.summary, info.places);
    }
    return rows;
  });
  module.def("layout_read_csv", &read_csv, py::arg("path"));
  module.def("layout_plan", &plan, py::kw_only(), py::arg("buffers"), py::arg("ops"),
             py::arg("planner"), py::arg("capacity_bytes"), py::arg("alignment_bytes"),
             py::arg("time_limit_s"), py::arg("node_limit"), py::arg("disable_inplace_ops"),
             py::arg("check"));
}

}  // namespace recoup
