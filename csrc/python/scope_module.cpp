// Entering and leaving a scope so that an interrupt leaves a defined state.
//
// Python raises KeyboardInterrupt, or what a signal handler raises, between two of its
// instructions: even before the first one of a function, where none of the function's handlers is
// in force yet. It does not interrupt C++ code. So calls that must happen are made here. The
// functions of a run may be interrupted anywhere; then its `_end` brings the run to a defined end:
// finished or suspended.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/address_map.h"
#include "csrc/python/common.h"
#include "recoup/torch.h"

namespace recoup {
namespace {

// `_end` may be interrupted, too; each call continues where the last one stopped.
void end_run(const py::object& run) {
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    try {
      run.attr("_end")();
      return;
    } catch (const py::error_already_set&) {  // the first error is the one to report
    }
  }
}

py::object enter(const py::object& budget) {
  py::object run = budget.attr("_make_run")();
  try {
    run.attr("_enter")();
  } catch (const py::error_already_set&) {
    end_run(run);
    throw;
  }
  budget.attr("_runs").attr("append")(run);
  return run;
}

void leave(const py::object& budget, const py::object& /*kind*/, const py::object& error,
           const py::object& /*traceback*/) {
  const py::object runs = budget.attr("_runs");
  if (py::len(runs) == 0) {
    throw std::runtime_error(
        "recoup: this scope was not entered, so it cannot be left: enter it with `with "
        "recoup.budget(...):`");
  }
  const py::object run = runs.attr("__getitem__")(-1);
  try {
    run.attr("_exit")(error);
  } catch (const py::error_already_set&) {
    end_run(run);
    if (!run.attr("_engine").attr("entered")().cast<bool>()) {  // else it is the wrong thread
      runs.attr("remove")(run);
    }
    throw;
  }
  runs.attr("remove")(run);
}

// Ends all offers when a thread starts, since it may read offered tensors at any time, unseen by
// recoup. Before Python 3.12 there is no event for this, see threads.py.
int on_audit(const char* event, PyObject* /*arguments*/, void* /*data*/) {
  constexpr std::string_view kThreadStarts = "_thread.start";
  if (std::string_view(event).substr(0, kThreadStarts.size()) == kThreadStarts) {
    const py::gil_scoped_release no_gil;
    withdraw_offers();
  }
  return 0;
}

// The tensors through which a storage is known.
struct Holders {
  at::Tensor one;
  std::int64_t count = 0;
  bool all_known = true;
};
using HoldersByStorage = std::map<const c10::StorageImpl*, Holders>;

// If storages overlap, their address is known through each other, even if neither refers to the
// other.
void leave_out_shared(HoldersByStorage& storages) {
  struct Place {
    detail::AddressRange range;
    Holders* holders = nullptr;
  };
  std::vector<Place> places;
  for (auto& [key, holders] : storages) {
    c10::StorageImpl& impl = *holders.one.storage().unsafeGetStorageImpl();
    const void* const data = impl._mutable_data_ptr_no_checks().get();
    if (data != nullptr && !impl.sym_nbytes().is_heap_allocated()) {
      places.push_back({{data, impl.nbytes()}, &holders});
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.range.from < b.range.from; });
  const Place* furthest = nullptr;  // the place with the largest end so far
  for (const Place& place : places) {
    if (furthest != nullptr && place.range.from < furthest->range.to) {
      place.holders->all_known = furthest->holders->all_known = false;
    }
    if (furthest == nullptr || place.range.to > furthest->range.to) {
      furthest = &place;
    }
  }
}

// The tensors among Python's `objects`, and the number of references to each that the `holders`
// have. tp_traverse reports what the garbage collector sees; gc.get_referents would make a list
// first.
std::pair<py::list, py::list> tensors_among(const py::list& objects, const py::list& holders) {
  std::unordered_map<const PyObject*, std::int64_t> references;
  py::list tensors;
  // By type: reading the `__class__` of an object may run code.
  auto* const tensor = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  for (const py::handle& each : objects) {
    if (PyType_IsSubtype(Py_TYPE(each.ptr()), tensor) != 0) {
      references.emplace(each.ptr(), 0);
      tensors.append(each);
    }
  }
  if (references.empty()) {
    return {py::list(), py::list()};  // the rest takes most of the time
  }
  const visitproc count = [](PyObject* object, void* found) {
    auto& all = *static_cast<decltype(references)*>(found);
    if (const auto at = all.find(object); at != all.end()) {
      ++at->second;
    }
    return 0;
  };
  for (const py::handle& each : holders) {
    if (PyObject_IS_GC(each.ptr()) != 0 && Py_TYPE(each.ptr())->tp_traverse != nullptr) {
      Py_TYPE(each.ptr())->tp_traverse(each.ptr(), count, &references);
    }
  }
  py::list counts;
  for (const py::handle& each : tensors) {
    counts.append(references.at(each.ptr()));
  }
  return {tensors, counts};
}

// Offers the storages of which all holders are known. `accounted[i]`: all references to the Python
// object of tensors[i] are known. C++ must hold no other reference, and no tensor of the storage
// may be missing. The last tensor is for comparison: only its Python object holds it.
void offer(Budget& budget, const py::list& tensors, const std::vector<bool>& accounted) {
  const auto tensor_at = [&tensors](std::size_t i) -> const at::Tensor& {
    return THPVariable_Unpack(PyList_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i)));
  };
  static const bool installed = PySys_AddAuditHook(&on_audit, nullptr) == 0;
  if (!installed) {
    PyErr_Clear();
    return;
  }
  const std::size_t last = tensors.size() - 1;
  const auto alone = tensor_at(last).use_count();
  HoldersByStorage storages;
  // In the order of the tensors, which does not depend on addresses: equal runs offer alike.
  std::vector<const Holders*> in_order;
  for (std::size_t i = 0; i < last; ++i) {
    const at::Tensor& tensor = tensor_at(i);
    if (!tensor.defined() || !tensor.has_storage()) {
      continue;
    }
    Holders& holders = storages[tensor.storage().unsafeGetStorageImpl()];
    if (++holders.count == 1) {
      in_order.push_back(&holders);
    }
    holders.all_known &= accounted[i] && tensor.use_count() == alone;
    holders.one = tensor;
  }
  leave_out_shared(storages);
  translated([&] {
    for (const Holders* const holders : in_order) {
      if (holders->all_known &&
          static_cast<std::int64_t>(holders->one.storage().use_count()) == holders->count) {
        budget.offer(holders->one);
      }
    }
    budget.end_offers();
  });
}

}  // namespace

void bind_scope(py::module_& module) {
  module.def("enter_scope", &enter, py::arg("budget"),
             "Starts the scope.\n\nRaises RuntimeError if one is already active on the device, or "
             "if a GPU has too little free\nmemory.");
  module.def("exit_scope", &leave, py::arg("budget"), py::arg("kind"), py::arg("error"),
             py::arg("traceback"),
             "Makes every live tensor resident and ends the scope.\n\nRaises OutOfBudgetError "
             "when they do not fit; the run is then suspended until `Run.resume`.\nThe body's own "
             "exception is never hidden: an error of the exit becomes a note on it.");
  module.def("offer", &offer, py::arg("engine"), py::arg("tensors"), py::arg("accounted"),
             "Offers to the spill tier the storages of which all holders are known.");
  module.def("tensors_among", &tensors_among, py::arg("objects"), py::arg("holders"));
  module.def("withdraw_offers", [] { translated([] { withdraw_offers(); }); });
  // Lets a C++ function become a method when it is an attribute of a class, like a Python function.
  module.def(
      "method",
      [](const py::object& function) {
        return py::reinterpret_steal<py::object>(PyInstanceMethod_New(function.ptr()));
      },
      py::arg("function"));
}

}  // namespace recoup
