// Bindings for orders of a trace's ops: recoup.offline.order has the types.
#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "csrc/offline/python/common.h"
#include "recoup/errors.h"
#include "recoup/offline/order.h"

namespace recoup {
namespace {

std::vector<std::pair<std::string, std::string>> rows_of(std::span<const OrderInfo> infos) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const OrderInfo& info : infos) {
    rows.emplace_back(info.name, info.summary);
  }
  return rows;
}

py::dict order(const Trace& trace, const std::string& traversal, const std::string& long_life) {
  const OpOrder order = translated([&] {
    OpOrder made = order_ops(trace, traversal, long_life);
    const std::string fault = check_order(trace, made.ops);
    if (!fault.empty()) {
      throw InternalError("recoup: internal error, please report it: " + fault);
    }
    return made;
  });
  py::dict dict;
  dict["traversal"] = order.traversal;
  dict["long_life"] = order.long_life;
  dict["ops"] = order.ops;
  dict["moves"] = order.moves;
  dict["bound_bytes"] = order.bound.count();
  dict["program_bound_bytes"] = order.program_bound.count();
  return dict;
}

Trace reordered(const Trace& trace, const std::vector<std::uint32_t>& ops) {
  return translated([&] {
    const std::string fault = check_order(trace, ops);
    if (!fault.empty()) {
      throw std::invalid_argument("illegal order: " + fault);
    }
    return reorder(trace, ops);
  });
}

}  // namespace

void bind_order(py::module_& module) {
  module.def("order_traversals", [] { return rows_of(traversals()); });
  module.def("order_rules", [] { return rows_of(long_life_rules()); });
  module.def("order_ops", &order, py::arg("trace"), py::kw_only(), py::arg("traversal"),
             py::arg("long_life"));
  module.def("order_apply", &reordered, py::arg("trace"), py::arg("ops"));
}

}  // namespace recoup
