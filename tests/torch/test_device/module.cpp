// _test_device: the Python module of the test device.
#include <torch/csrc/utils/pybind.h>

#include "tests/torch/test_device/device.h"
#include "tests/torch/test_device/fallback.h"
#include "tests/torch/test_device/generator.h"
#include "tests/torch/test_device/memory.h"

namespace recoup::test_device {
namespace {

void install_all(std::uint64_t seed, int devices, std::int64_t memory_bytes,
                 std::int64_t forget_each, const std::string& allocator) {
  install(
      {.seed = seed, .devices = devices, .memory = Bytes(memory_bytes), .forget_each = forget_each},
      allocator);
  register_fallback();
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  module.def("install", &install_all, py::kw_only(), py::arg("seed") = 0, py::arg("devices") = 2,
             py::arg("memory_bytes") = (256_MiB).count(), py::arg("forget_each") = 0,
             py::arg("allocator") = "native");
  module.def("device_count", [] { return fake().device_count(); });
  module.def("current_device", [] { return int{current_device()}; });
  module.def("set_device",
             [](int device) { set_current_device(static_cast<c10::DeviceIndex>(device)); });
  module.def("default_generator",
             [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });

  module.def("synchronize", [] { fake().synchronize_all(); }, no_gil);
  module.def("run", [](int tasks) { fake().run(tasks); }, py::arg("tasks"), no_gil);
  module.def("empty_cache", [] { slot().load()->emptyCache({0, 0}); }, no_gil);
  module.def("undecorated", &undecorated);
  // Memory without tensors, as C++ code may allocate it.
  module.def("raw_alloc", [](std::size_t size) {
    return reinterpret_cast<std::uintptr_t>(slot().load()->raw_alloc(size));
  });
  module.def("raw_delete", [](std::uintptr_t memory) {
    slot().load()->raw_delete(reinterpret_cast<void*>(memory));
  });
  module.def("resize_storage", [](const at::Tensor& tensor, std::size_t size) {
    resize_storage(*tensor.storage().unsafeGetStorageImpl(), size);
  });
  module.def("allocated_bytes", [](int device) { return fake().allocated(device).count(); });
  // Device memory that another process uses.
  module.def("take_away", [](int device, std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(fake().allocate(device, Bytes(bytes)));
  });
  module.def("give_back", [](int device, std::uintptr_t memory) {
    fake().release(device, reinterpret_cast<void*>(memory));
  });
  // Pinned host memory.
  module.def("pinned_bytes", [] { return fake().pinned().count(); });
  module.def("set_pinned_limit", [](std::int64_t bytes) { fake().set_pinned_limit(Bytes(bytes)); });
  module.def("waits", [] { return fake().waits(); });
  module.def("events", [] { return fake().events(); });
  module.def("synchronizations", [] { return fake().synchronizations() - own_synchronizations(); });
  module.def("begin_capture",
             [](const c10::Stream& stream) { fake().begin_capture(native_stream(stream)); });
  module.def("end_capture",
             [](const c10::Stream& stream) { fake().end_capture(native_stream(stream)); });
}

}  // namespace recoup::test_device
