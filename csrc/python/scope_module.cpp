// Entering and leaving a scope so that no interrupt leaves anything behind.
//
// Python raises KeyboardInterrupt, or what a signal's handler raises, between two of its
// instructions: before the first one of a function too, where none of its handlers is in force yet.
// In C++ there are no instructions. So what has to happen for sure is called from here: the
// functions of a run may be interrupted anywhere, and then its `_settle` brings the run to an end
// that is one: over, or suspended.
#include "csrc/python/common.h"

namespace recoup {
namespace {

// `_settle` may be interrupted too; each call goes on where the last one was.
void settle(const py::object& run) {
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    try {
      run.attr("_settle")();
      return;
    } catch (const py::error_already_set&) {  // the first error is the one that counts
    }
  }
}

py::object enter(const py::object& budget) {
  py::object run = budget.attr("_make_run")();
  try {
    run.attr("_enter")();
  } catch (const py::error_already_set&) {
    settle(run);
    throw;
  }
  budget.attr("_runs").attr("append")(run);
  return run;
}

void leave(const py::object& budget, const py::object& /*kind*/, const py::object& error,
           const py::object& /*traceback*/) {
  const py::object runs = budget.attr("_runs");
  const py::object run = runs.attr("__getitem__")(-1);
  try {
    run.attr("_exit")(error);
  } catch (const py::error_already_set&) {
    settle(run);
    if (!run.attr("_engine").attr("entered")().cast<bool>()) {  // else it was the wrong thread's
      runs.attr("remove")(run);
    }
    throw;
  }
  runs.attr("remove")(run);
}

}  // namespace

void bind_scope(py::module_& module) {
  module.def("enter_scope", &enter, py::arg("budget"),
             "Starts the scope.\n\n"
             "Raises RuntimeError when one is already active on the device, or a GPU has not so "
             "much free\nmemory.");
  module.def("exit_scope", &leave, py::arg("budget"), py::arg("kind"), py::arg("error"),
             py::arg("traceback"),
             "Makes every live tensor resident and ends the scope.\n\n"
             "Raises OutOfBudgetError when they do not fit; the run is then suspended until "
             "`Run.finish`.\nThe body's own exception is never hidden: what goes wrong here "
             "becomes a note on it.");
  // A function of C++ becomes a method when it is an attribute of a class, as those of Python do.
  module.def(
      "method",
      [](const py::object& function) {
        return py::reinterpret_steal<py::object>(PyInstanceMethod_New(function.ptr()));
      },
      py::arg("function"));
}

}  // namespace recoup
