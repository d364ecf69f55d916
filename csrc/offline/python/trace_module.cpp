// recoup.offline._C: traces and their simulation.
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/offline/python/common.h"
#include "csrc/trace/graph.h"
#include "csrc/trace/step.h"
#include "recoup/offline/traces.h"
#include "recoup/trace.h"

namespace recoup {
namespace {

const char* status_name(SimulationResult::Status status) {
  switch (status) {
    case SimulationResult::Status::kOk:
      return "ok";
    case SimulationResult::Status::kOutOfBudget:
      return "out of budget";
    case SimulationResult::Status::kTooSlow:
      return "too slow";
  }
  return "";
}

using SeedAndPercent = std::optional<std::pair<std::uint64_t, double>>;

SimulationOptions how(const Options& options, double max_time_ratio, std::optional<bool> plan_ahead,
                      const SeedAndPercent& noise) {
  SimulationOptions made{
      .engine = options, .max_time_ratio = max_time_ratio, .plan_ahead = plan_ahead};
  made.engine.spill_to_leave = true;  // as in a live run on the CPU
  made.engine.max_slowdown = 0;       // max_time_ratio bounds a simulation
  if (noise) {
    made.noise = {.seed = noise->first, .percent = noise->second};
  }
  return made;
}

py::dict simulated(const Trace& trace, const Options& options, double max_time_ratio,
                   bool log_decisions, std::optional<bool> plan_ahead, SeedAndPercent noise) {
  std::vector<Decision> decisions;
  const SimulationResult result = translated([&] {
    return simulate(trace, how(options, max_time_ratio, plan_ahead, noise),
                    log_decisions ? &decisions : nullptr);
  });
  py::dict dict = dict_of(result);
  dict["decisions"] = rows_of(decisions);
  return dict;
}

// (kind, name, start in ns, cost in ns, charged bytes) each.
py::list timeline_rows(const Trace& trace, const Options& options, double max_time_ratio,
                       std::optional<bool> plan_ahead, SeedAndPercent noise) {
  static constexpr const char* kKinds[] = {"op", "replay", "evict", "step"};
  const std::vector<TimelineRow> rows =
      translated([&] { return timeline(trace, how(options, max_time_ratio, plan_ahead, noise)); });
  py::list list;
  for (const TimelineRow& row : rows) {
    const bool named = row.kind != TimelineRow::Kind::kEvict;
    list.append(py::make_tuple(kKinds[static_cast<std::size_t>(row.kind)],
                               named ? trace.names[row.name] : std::string(), row.start.count(),
                               row.cost.count(), row.charged.count()));
  }
  return list;
}

// One dict per op, in the order in which the program ran them.
py::list op_rows(const Trace& trace) {
  py::list rows;
  for (const TraceOp& op : trace.ops) {
    py::dict row;
    row["name"] = trace.names[op.name];
    row["cost_ns"] = op.cost.count();
    row["workspace_bytes"] = op.workspace.count();
    row["repeatable"] = op.repeatable;
    row["random"] = op.random;
    row["failed"] = op.failed;
    py::list operands;
    for (const TraceOperand& operand : trace.operands_of(op)) {
      operands.append(py::make_tuple(operand.storage, operand.reads, operand.written));
    }
    row["operands"] = operands;
    py::list fresh;
    for (const TraceFresh& each : trace.fresh_of(op)) {
      fresh.append(each.nbytes.count());
    }
    row["fresh_bytes"] = fresh;
    rows.append(row);
  }
  return rows;
}

Bytes in_the_pool(Bytes nbytes, const TraceDevice& device) {
  const std::int64_t alignment = device.alignment.count();
  return Bytes((nbytes.count() + alignment - 1) / alignment * alignment);
}

// The largest number of bytes that a kernel holds at once, in blocks of the pool.
Bytes peak_of(const std::vector<KernelStep>& kernel, const TraceDevice& device) {
  std::vector<Bytes> made;
  Bytes held{0};
  Bytes most{0};
  for (const KernelStep& step : kernel) {
    if (step.kind == KernelStep::Kind::kAllocate) {
      made.push_back(in_the_pool(step.size, device));
      held += made.back();
      most = std::max(most, held);
    } else {
      held -= made[step.index];
    }
  }
  return most;
}

py::list graph_op_rows(const Trace& trace, const detail::TraceGraph& graph) {
  py::list rows;
  for (const detail::GraphOp& node : graph.ops) {
    const TraceOp& op = trace.ops[node.op];
    py::dict row;
    row["name"] = trace.names[op.name];
    row["cost_ns"] = op.cost.count();
    row["kernel_bytes"] = peak_of(trace.kernels[op.kernel], trace.device).count();
    row["inputs"] = node.inputs;
    row["outputs"] = node.outputs;
    rows.append(row);
  }
  return rows;
}

py::list graph_value_rows(const Trace& trace, const detail::TraceGraph& graph) {
  std::vector<Bytes> sizes;
  std::vector<py::object> befores;
  std::vector<py::object> versions;  // index of the newest value, by storage
  for (const detail::GraphValue& value : graph.values) {
    if (value.storage >= versions.size()) {
      versions.resize(value.storage + std::size_t{1}, py::none());
    }
    befores.push_back(versions[value.storage]);
    versions[value.storage] = py::int_(befores.size() - 1);
    sizes.push_back(in_the_pool(value.size, trace.device));
  }
  for (const detail::GraphOp& node : graph.ops) {  // a block may be larger than the value in it
    const TraceOp& op = trace.ops[node.op];
    const std::span<const TraceFresh> fresh = trace.fresh_of(op);
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      std::size_t allocation = 0;
      for (const KernelStep& step : trace.kernels[op.kernel]) {
        if (step.kind == KernelStep::Kind::kAllocate && allocation++ == fresh[i].allocation) {
          sizes[node.outputs[i]] = in_the_pool(step.size, trace.device);
        }
      }
    }
  }
  py::list rows;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const detail::GraphValue& value = graph.values[i];
    const bool made = value.producer != detail::GraphValue::kNone;
    if (!befores[i].is_none()) {
      sizes[i] = sizes[befores[i].cast<std::size_t>()];
    }
    py::dict row;
    row["producer"] = made ? py::object(py::int_(value.producer)) : py::none();
    row["before"] = befores[i];
    row["born"] = value.born;
    row["dies"] = value.dies;
    row["readers"] = value.readers;
    row["size_bytes"] = sizes[i].count();
    row["recomputable"] = value.recomputable;
    rows.append(row);
  }
  return rows;
}

// detail::TraceGraph as dicts. Sizes in bytes are those of blocks in the pool.
py::dict graph_rows(const Trace& trace, std::int64_t small_result_bytes) {
  const detail::TraceGraph graph =
      translated([&] { return detail::build_graph(trace, Bytes(small_result_bytes)); });
  py::dict dict;
  dict["ops"] = graph_op_rows(trace, graph);
  dict["values"] = graph_value_rows(trace, graph);
  dict["at_exit"] = graph.at_exit;
  return dict;
}

}  // namespace

py::dict dict_of(const SimulationResult& result) {
  py::dict dict;
  dict["status"] = status_name(result.status);
  dict["reason"] = result.reason;
  dict["ops"] = result.ops;
  dict["plain_cost_ns"] = result.plain_cost.count();
  dict["replay_cost_ns"] = result.replay_cost.count();
  dict["spill_cost_ns"] = result.spill_cost.count();
  dict["time_ratio"] = result.time_ratio();
  dict["stats"] = dict_of(result.stats);
  return dict;
}

void bind_trace(py::module_& module) {
  py::class_<Trace> trace(module, "Trace", py::is_final());
  trace
      .def_static(
          "read",
          [](const std::string& path) { return translated([&] { return read_trace(path); }); },
          py::arg("path"))
      .def(
          "write",
          [](const Trace& self, const std::string& path) {
            translated([&] { write_trace(self, path); });
          },
          py::arg("path"))
      .def(
          "unbudgeted_peak_bytes",
          [](const Trace& self, const Options& options) {
            return translated([&] { return unbudgeted_peak(self, options).count(); });
          },
          py::arg("options"))
      .def("simulate", &simulated, py::arg("options"), py::kw_only(), py::arg("max_time_ratio"),
           py::arg("decisions"), py::arg("plan_ahead"), py::arg("noise"))
      .def("timeline", &timeline_rows, py::arg("options"), py::kw_only(), py::arg("max_time_ratio"),
           py::arg("plan_ahead"), py::arg("noise"))
      .def("graph", &graph_rows, py::kw_only(), py::arg("small_result_bytes"))
      .def(
          "step",
          [](const Trace& self, std::size_t index) {
            return translated([&] { return detail::step_of(self, index); });
          },
          py::arg("index"))
      .def("ops", &op_rows)
      .def("names", [](const Trace& self) { return self.names; })
      .def("op_count", [](const Trace& self) { return self.ops.size(); });
  bind_trace_edits(module, trace);
}

}  // namespace recoup
