// Bindings of a budget that several processes share, and of paged results.
#include <pybind11/stl.h>

#include <cstdint>
#include <string>

#include "csrc/python/common.h"

namespace recoup {
namespace {

py::list share_rows(const Budget& budget) {
  py::list rows;
  for (const SharePart& part : translated([&] { return budget.share_parts(); })) {
    py::dict row;
    row["process"] = part.process;
    row["is_own"] = part.is_own;
    row["part"] = part.part.count();
    row["workers"] = part.workers.count();
    row["demand"] = part.demand.count();
    row["needs"] = part.needs.count();
    row["wait_ns"] = part.wait_time.count();
    rows.append(row);
  }
  return rows;
}

py::dict share_counters(const Budget& budget) {
  const ShareCounters counters = translated([&] { return budget.share_counters(); });
  py::dict row;
  row["total_bytes"] = counters.total.count();
  row["most_bytes"] = counters.most.count();
  row["waits"] = counters.waits;
  row["wait_ns"] = counters.wait_time.count();
  return row;
}

py::dict paged_use(const Budget& budget) {
  const PagedUse use = translated([&] { return budget.paged_use(); });
  py::dict row;
  row["now_bytes"] = use.now.count();
  row["most_bytes"] = use.most.count();
  row["read_bytes"] = use.read.count();
  row["written_bytes"] = use.written.count();
  row["disk_ns"] = use.disk_time.count();
  return row;
}

}  // namespace

void bind_share(py::class_<Budget>& budget) {
  budget
      .def(
          "share",
          [](Budget& self, const std::string& file, std::int64_t total) {
            os_errors([&] { self.share(file, Bytes(total)); });
          },
          py::arg("file"), py::arg("total_bytes"))
      .def(
          "give",
          [](Budget& self, std::int64_t bytes) {
            return translated([&] { return self.give(Bytes(bytes)); });
          },
          py::arg("budget_bytes"))
      .def(
          "publish_share",
          [](Budget& self, std::int64_t demand, std::int64_t workers) {
            translated([&] { self.publish_share(Bytes(demand), Bytes(workers)); });
          },
          py::arg("demand_bytes"), py::arg("worker_bytes"))
      .def(
          "limit_share",
          [](Budget& self, std::int64_t bytes) {
            translated([&] { self.limit_share(Bytes(bytes)); });
          },
          py::arg("limit_bytes"))
      .def("share_parts", &share_rows)
      .def("share_counters", &share_counters)
      .def("paged_use", &paged_use)
      .def("take_recent_peak", [](Budget& self) {
        return translated([&] { return self.take_recent_peak().count(); });
      });
}

}  // namespace recoup
