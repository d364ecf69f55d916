// recoup._C: Python bindings of the engine.
#include <optional>
#include <string>
#include <system_error>

#include "csrc/python/common.h"
#include "recoup/bindings.h"

namespace recoup {
namespace {

// The Python class of out-of-budget errors. Owned by the module, which is never unloaded.
PyObject* out_of_budget_class = nullptr;

void set_int(const py::object& object, const char* name, Bytes value) {
  object.attr(name) = value.count();
}

}  // namespace

void throw_python(const OutOfBudgetReport& report) {
  const py::gil_scoped_acquire gil;
  const auto error = py::reinterpret_borrow<py::object>(out_of_budget_class)(report.to_string());
  error.attr("op") = report.op;
  set_int(error, "asked_bytes", report.asked);
  set_int(error, "budget_bytes", report.budget);
  set_int(error, "external_bytes", report.external);
  set_int(error, "non_recomputable_bytes", report.non_recomputable);
  set_int(error, "pinned_bytes", report.pinned);
  set_int(error, "workspace_bytes", report.workspace);
  set_int(error, "evictable_bytes", report.evictable);
  set_int(error, "largest_window_bytes", report.largest_window);
  set_int(error, "least_bytes", report.least);
  set_int(error, "next_bytes", report.next);
  set_int(error, "next_spill_bytes", report.next_spill);
  set_int(error, "enough_bytes", report.enough);
  PyErr_SetObject(out_of_budget_class, error.ptr());
  python_error raised;
  raised.persist();
  throw raised;
}

namespace {

void tell_of_outside_access(int thread) {
  const py::gil_scoped_acquire gil;
  try {
    py::module_::import("recoup._patching.threads").attr("tell_of_outside_access")(thread);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("recoup._patching.threads");
  }
}

// setattr, or delattr if `attribute` is None, for a type that is implemented in C and that Python
// does not let programs change.
void put_in_type(const py::type& type, const py::str& name, const py::object& attribute) {
  auto* const object = reinterpret_cast<PyTypeObject*>(type.ptr());
  const auto attributes = py::reinterpret_borrow<py::dict>(object->tp_dict);
  if (attribute.is_none()) {
    attributes.attr("pop")(name, py::none());
  } else {
    attributes[name] = attribute;
  }
  PyType_Modified(object);
}

py::list pinned_list(const Budget& budget) {
  py::list rows;
  for (const PinnedRow& row : budget.pinned()) {
    py::dict dict;
    dict["bytes"] = row.size.count();
    dict["by"] = row.by;
    dict["op"] = row.op;
    dict["maker"] = index_of(row.maker);
    dict["name"] = index_of(row.name);
    dict["why"] = row.why;
    dict["line"] = row.line.valid() ? line_text(row.line) : std::string();
    rows.append(dict);
  }
  return rows;
}

py::list copy_wait_list(const Budget& budget) {
  py::list rows;
  for (const CopyWaitRow& row : budget.copy_waits()) {
    py::dict dict;
    dict["op"] = row.op;
    dict["spill_ns"] = row.spill_ns;
    dict["fetch_ns"] = row.fetch_ns;
    rows.append(dict);
  }
  return rows;
}

py::list policy_list() {
  py::list rows;
  for (const PolicyInfo& policy : policies()) {
    rows.append(py::make_tuple(std::string(policy.name), std::string(policy.summary),
                               policy.defaults.small_filter, policy.defaults.sampling,
                               policy.schedule != ScheduleKind::kNone, policy.simulated_only,
                               policy.has_order, policy.foresees));
  }
  return rows;
}

void bind_engine(py::module_& module) {
  py::class_<Budget> budget(module, "Engine", py::is_final());
  bind_share(budget);
  budget
      .def(py::init([](const Options& options, const std::string& device) {
             return os_errors([&] { return std::make_unique<Budget>(options, device); });
           }),
           py::arg("options"), py::arg("device") = "cpu")
      .def("enter",
           [](Budget& self) {
             try {
               self.enter();
             } catch (const std::logic_error& error) {
               throw std::runtime_error(error.what());
             }
           })
      .def("leave", [](Budget& self) { os_errors([&] { self.leave(); }); })
      .def("abandon", [](Budget& self) { os_errors([&] { self.abandon(); }); })
      .def(
          "record",
          [](Budget& self, const std::string& path) { os_errors([&] { self.record(path); }); },
          py::arg("path"))
      .def(
          "mark_step",
          [](Budget& self, const std::string& name) { translated([&] { self.mark_step(name); }); },
          py::arg("name"))
      .def("log_decisions", &Budget::log_decisions)
      .def("decisions", [](const Budget& self) { return rows_of(self.decisions()); })
      .def(
          "set_budget",
          [](Budget& self, std::int64_t bytes) {
            translated([&] { self.set_budget(Bytes(bytes)); });
          },
          py::arg("budget_bytes"))
      .def("count_pages", [](Budget& self) { translated([&] { self.count_pages(); }); })
      .def("committed_bytes",
           [](const Budget& self) {
             std::int64_t bytes = 0;
             translated([&] { bytes = self.committed().count(); });
             return bytes;
           })
      .def("reset_peak", [](Budget& self) { translated([&] { self.reset_peak(); }); })
      .def("entered", &Budget::entered)
      .def("suspended", &Budget::suspended)
      .def("stats", [](const Budget& self) { return dict_of(self.stats()); })
      .def("pinned", &pinned_list)
      .def(
          "attribute",
          [](Budget& self, bool lines, bool step, bool moments) {
            self.attribute(
                {.line = lines ? &program_line : nullptr, .step = step, .moments = moments});
          },
          py::arg("lines"), py::arg("step"), py::arg("moments"))
      .def(
          "set_names",
          [](Budget& self, const std::vector<std::pair<at::Tensor, std::uint32_t>>& names) {
            translated([&] {
              for (const auto& [tensor, name] : names) {
                self.set_name(tensor, name);
              }
            });
          },
          py::arg("names"))
      .def(
          "add_rule",
          [](Budget& self, std::uint32_t number, int rule) {
            translated([&] { self.add_rule(number, static_cast<StorageRule>(rule)); });
          },
          py::arg("module"), py::arg("rule"))
      .def("attribution", [](const Budget& self) { return dict_of(self.attribution()); })
      .def("copy_waits", &copy_wait_list)
      .def("check", [](const Budget& self) { translated([&] { self.check(); }); });
}

// A tensor over all bytes of a storage, resident or not. `set_` would access the bytes.
at::Tensor alias_of(const c10::Storage& storage) {
  const c10::SymInt size = storage.sym_nbytes();
  const c10::DispatchKey key = c10::computeDispatchKey(at::kByte, c10::kStrided, storage.device());
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), at::scalarTypeToTypeMeta(at::kByte));
  alias.unsafeGetTensorImpl()->set_sizes_contiguous(
      {size.is_heap_allocated() ? 0 : size.expect_int()});
  return alias;
}

// Reports name the program's current line as the one that took the tensor's address.
void name_line(const at::Tensor& tensor) {
  if (active()) {
    const std::uint32_t line = program_line();
    translated([&] { set_address_line(tensor, line == Maker::kNone ? LineId() : LineId(line)); });
  }
}

void bind_functions(py::module_& module) {
  py::class_<Shown>(module, "Shown", py::is_final()).def("end", [](Shown& self) {
    translated([&] { self.end(); });
  });
  py::class_<Pin>(module, "Pin", py::is_final())
      .def("release", [](Pin& self) { translated([&] { self.release(); }); })
      .def("keep", &Pin::keep);
  py::class_<Reservation>(module, "Reservation", py::is_final())
      .def(py::init([](std::int64_t bytes) {
             return translated([&] { return std::make_unique<Reservation>(Bytes(bytes)); });
           }),
           py::arg("bytes"))
      .def("release", [](Reservation& self) { translated([&] { self.release(); }); });
  module.def("alias_of", &alias_of, py::arg("storage"));
  module.def(
      "set_rule",
      [](const at::Tensor& tensor, int rule) {
        translated([&] { set_rule(tensor, static_cast<StorageRule>(rule)); });
      },
      py::arg("tensor"), py::arg("rule"));
  const auto tensor = py::arg("tensor");
  // PyTorch has this function in Python since 2.13.
  module.def(
      "const_address",
      [](const at::Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()); },
      tensor);
  module.def("charge", [](const at::Tensor& t) { translated([&] { charge(t); }); }, tensor);
  module.def("grows_outside", &grows_outside, tensor);
  module.def("in_pool", &in_pool, tensor);
  module.def("is_unused_mapping", &is_unused_mapping, tensor);
  module.def("learn_slices", &learn_slices, py::arg("slice"), py::arg("whole"));
  module.def("let_observers_look", &let_observers_look, py::arg("on"));
  module.def("policies", &policy_list);
  module.def("active", &active);
  module.def(
      "evict", [](const at::Tensor& t) { return translated([&] { return evict(t); }); }, tensor);
  module.def(
      "is_resident", [](const at::Tensor& t) { return translated([&] { return is_resident(t); }); },
      tensor);
  module.def(
      "materialize", [](const at::Tensor& t) { translated([&] { materialize(t); }); }, tensor);
  module.def(
      "escape",
      [](const at::Tensor& t) {
        const bool is_new = translated([&] { return escape(t, Address::kNew); });
        if (is_new) {
          name_line(t);
        }
        return is_new;
      },
      tensor);
  module.def(
      "show",
      [](const at::Tensor& t) {
        Shown shown = translated([&] { return Shown(t); });
        name_line(t);
        return shown;
      },
      tensor);
  module.def(
      "pin",
      [](const at::Tensor& t) { return translated([&] { return std::make_unique<Pin>(t); }); },
      tensor);
  module.def("allow_replay", &allow_replay, py::arg("name"));
  module.def("put_in_type", &put_in_type, py::arg("type"), py::arg("name"), py::arg("attribute"));
  module.def("carry", &carry, py::arg("on"));
  module.def("carries", &carries);
  module.def("named_ops", [] {
    py::list rows;
    for (const NamedOp& op : named_ops()) {
      rows.append(py::make_tuple(op.table, op.name, op.arguments));
    }
    return rows;
  });
  module.def("overridden_ops", &overridden_ops);
  module.def("set_unseen", &set_unseen, py::arg("on"));
  module.def("pass_through", &pass_through, py::arg("on"));
  module.def(
      "replay_traits",
      [](const std::string& name, const std::string& overload) {
        const ReplayTraits traits = translated([&] { return replay_traits(name, overload); });
        py::dict dict;
        dict["seen"] = traits.seen;
        dict["repeatable"] = traits.repeatable;
        dict["verifiable"] = traits.verifiable;
        dict["random"] = traits.random;
        dict["thread_order"] = traits.thread_order;
        dict["with_generator"] = traits.with_generator;
        return dict;
      },
      py::arg("name"), py::arg("overload"));
  module.def("choose_math_kernels", &choose_math_kernels);
  module.def("settings_number", &settings_number);
  module.def("physical_memory_bytes", [] { return physical_memory().count(); });
  module.def(
      "gpu_memory",
      [](int device) {
        const GpuMemory memory = translated([&] { return gpu_memory(device); });
        py::dict dict;
        dict["free_bytes"] = memory.free.count();
        dict["total_bytes"] = memory.total.count();
        dict["outside_bytes"] = memory.outside.count();
        dict["reserved_bytes"] = memory.reserved.count();
        dict["used_bytes"] = memory.used.count();
        return dict;
      },
      py::arg("device"));
  module.attr("with_cuda") = with_cuda();
  module.def("install_cuda", [] { translated([] { install_cuda(); }); });
  module.def(
      "set_out_of_budget_error",
      [](py::type cls) {
        out_of_budget_class = cls.release().ptr();
        set_out_of_budget_thrower(&throw_python);
      },
      py::arg("cls"));
}

}  // namespace
}  // namespace recoup

PYBIND11_MODULE(_C, module) {
  module.attr("__version__") = RECOUP_VERSION;
  static constexpr recoup::InterpreterLock kGil{
      .running = &recoup::interpreter_runs,
      .release = []() -> void* {
        const bool held = Py_IsInitialized() != 0 && PyGILState_Check() == 1;
        return held ? static_cast<void*>(PyEval_SaveThread()) : nullptr;
      },
      .take_back =
          [](void* released) { PyEval_RestoreThread(static_cast<PyThreadState*>(released)); },
      .hold = [] { return static_cast<int>(PyGILState_Ensure()); },
      .let_go = [](int held) { PyGILState_Release(static_cast<PyGILState_STATE>(held)); },
      .references = [](const void* object) -> std::int64_t {
        return Py_REFCNT(static_cast<PyObject*>(const_cast<void*>(object)));
      },
      .outside_access = &recoup::tell_of_outside_access};
  recoup::set_interpreter_lock(kGil);
  recoup::install_hook();  // an exception is an ImportError
  module.attr("hook") = recoup::hook_name();
  recoup::bind_options(module);
  recoup::bind_engine(module);
  recoup::bind_functions(module);
  recoup::bind_scope(module);
  recoup::bind_compiled(module);
  recoup::bind_attribution(module);
  recoup::bind_scripts(module);
  recoup::bind_collectives(module);
  recoup::bind_graphs(module);
}
