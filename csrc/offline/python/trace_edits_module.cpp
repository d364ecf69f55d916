// recoup.offline._C: the events and numbers of a trace, and traces that are made of them.
#include <pybind11/stl.h>

#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "csrc/offline/python/common.h"
#include "csrc/trace/event_traits.h"
#include "csrc/trace/sink.h"
#include "csrc/trace/step.h"
#include "recoup/trace.h"

namespace recoup {
namespace {

// (kind, index, bytes) each.
py::list event_rows(const Trace& trace) {
  py::list rows;
  for (const TraceEvent& event : trace.events) {
    rows.append(
        py::make_tuple(detail::traits_of(event.kind).name, event.index, event.size.count()));
  }
  return rows;
}

// ---- numbers ----

// Calls `visit` with a name, a vector of the trace and a field of its elements, for each number
// that Python reads or changes.
template <class AnyTrace, class Visit>
void visit_numbers(AnyTrace& trace, Visit&& visit) {
  visit("op_kernels", trace.ops, &TraceOp::kernel);
  visit("op_costs_ns", trace.ops, &TraceOp::cost);
  visit("op_workspace_bytes", trace.ops, &TraceOp::workspace);
  visit("op_copies", trace.ops, &TraceOp::copies);
  visit("operands_left_out", trace.operands, &TraceOperand::left_out);
  visit("fresh_allocations", trace.fresh, &TraceFresh::allocation);
  visit("fresh_bytes", trace.fresh, &TraceFresh::nbytes);
  visit("part_operand_counts", trace.parts, &TracePart::operand_count);
  visit("part_workspace_bytes", trace.parts, &TracePart::workspace);
  visit("part_operands", trace.part_operands, &TracePartOperand::storage);
  visit("event_indices", trace.events, &TraceEvent::index);
  visit("event_bytes", trace.events, &TraceEvent::size);
}

template <class Field>
auto plain(Field field) {
  if constexpr (std::is_integral_v<Field>) {
    return field;
  } else {
    return field.count();
  }
}

py::dict numbers_of(const Trace& trace) {
  py::dict numbers;
  visit_numbers(trace, [&](const char* name, const auto& records, auto field) {
    py::list values;
    for (const auto& record : records) {
      values.append(plain(record.*field));
    }
    numbers[name] = values;
  });
  return numbers;
}

// An allocation is its bytes, a free is ~(number of the allocation).
std::vector<std::int64_t> plain_kernel(const std::vector<KernelStep>& kernel) {
  std::vector<std::int64_t> steps;
  for (const KernelStep& step : kernel) {
    const bool frees = step.kind == KernelStep::Kind::kFree;
    steps.push_back(frees ? ~std::int64_t{step.index} : step.size.count());
  }
  return steps;
}

std::vector<KernelStep> kernel_of(const std::vector<std::int64_t>& plain) {
  std::vector<KernelStep> steps;
  for (const std::int64_t step : plain) {
    if (step < 0) {
      steps.push_back(
          {.kind = KernelStep::Kind::kFree, .index = static_cast<std::uint32_t>(~step)});
    } else {
      steps.push_back({.kind = KernelStep::Kind::kAllocate, .size = Bytes(step)});
    }
  }
  return steps;
}

std::vector<std::vector<std::int64_t>> kernels_of(const Trace& trace) {
  std::vector<std::vector<std::int64_t>> kernels;
  for (const std::vector<KernelStep>& kernel : trace.kernels) {
    kernels.push_back(plain_kernel(kernel));
  }
  return kernels;
}

// A trace with other kernels, and with `numbers` instead of those of the same names. It has no
// plans, which were made for the old numbers.
Trace with_numbers(const Trace& trace, const py::dict& numbers,
                   const std::vector<std::vector<std::int64_t>>& kernels) {
  Trace made = trace;
  std::size_t known = 0;
  visit_numbers(made, [&](const char* name, auto& records, auto field) {
    if (!numbers.contains(name) || py::len(numbers[name]) != records.size()) {
      return;
    }
    ++known;
    using Field = std::remove_reference_t<decltype(records.front().*field)>;
    const auto values = numbers[name].cast<std::vector<decltype(plain(Field()))>>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      records[i].*field = Field(values[i]);
    }
  });
  if (known < numbers.size()) {
    throw py::value_error("the numbers have other names or lengths than those of the trace");
  }
  made.kernels.clear();
  for (const std::vector<std::int64_t>& kernel : kernels) {
    made.kernels.push_back(kernel_of(kernel));
  }
  return translated([&] {
    validate(made);
    return detail::first_events(made, made.events.size());
  });
}

// ---- the builder ----

void add_event(detail::TraceBuilder& builder, const std::string& name, std::uint32_t index,
               std::int64_t bytes) {
  for (const detail::EventTraits& traits : detail::kEventTraits) {
    if (name == traits.name && traits.index != detail::EventIndex::kOwnRecord) {
      builder.add_event({.kind = traits.kind, .index = index, .size = Bytes(bytes)});
      return;
    }
  }
  throw py::value_error("unknown event '" + name + "'");
}

// operands: (storage, reads, written, overwritten) each; fresh_bytes: sizes of the results, which
// are the first allocations of the kernel.
void add_op(detail::TraceBuilder& builder, std::uint32_t name, std::uint32_t kernel,
            std::int64_t cost_ns, bool repeatable,
            const std::vector<std::tuple<std::uint32_t, bool, bool, bool>>& operands,
            const std::vector<std::int64_t>& fresh_bytes) {
  std::vector<TraceOperand> uses;
  for (const auto& [storage, reads, written, overwritten] : operands) {
    uses.push_back({.storage = storage,
                    .reads = reads,
                    .written = written,
                    .overwritten = overwritten,
                    .left_out = false});
  }
  std::vector<TraceFresh> fresh;
  for (std::int64_t bytes : fresh_bytes) {
    fresh.push_back(
        {.allocation = static_cast<std::uint32_t>(fresh.size()), .nbytes = Bytes(bytes)});
  }
  TraceOp op;
  op.name = name;
  op.kernel = kernel;
  op.cost = Nanoseconds(cost_ns);
  op.repeatable = repeatable;
  builder.add_op(op, uses, fresh);
}

}  // namespace

void bind_trace_edits(py::module_& module, py::class_<Trace>& trace) {
  trace.def("events", &event_rows)
      .def("numbers", &numbers_of)
      .def("kernels", &kernels_of)
      .def("with_numbers", &with_numbers, py::arg("numbers"), py::arg("kernels"))
      .def("first_events", &detail::first_events, py::arg("count"));
  py::class_<detail::TraceBuilder>(module, "TraceBuilder", py::is_final())
      .def(py::init<>())
      .def(
          "add_name",
          [](detail::TraceBuilder& self, const std::string& name) { self.add_name(name); },
          py::arg("name"))
      .def(
          "add_kernel",
          [](detail::TraceBuilder& self, const std::vector<std::int64_t>& steps) {
            self.add_kernel(kernel_of(steps));
          },
          py::arg("steps"))
      .def("add_op", &add_op, py::arg("name"), py::arg("kernel"), py::arg("cost_ns"),
           py::arg("repeatable"), py::arg("operands"), py::arg("fresh_bytes"))
      .def("add_event", &add_event, py::arg("kind"), py::arg("index"), py::arg("bytes"))
      .def("build", [](detail::TraceBuilder& self) {
        return translated([&] {
          Trace made = self.take();
          validate(made);
          return made;
        });
      });
}

}  // namespace recoup
