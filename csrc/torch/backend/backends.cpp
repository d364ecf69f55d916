#include "csrc/torch/backend/backends.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <stdexcept>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/backend/host_backend.h"

namespace recoup::detail {
namespace {

struct Accelerator {
  c10::DeviceType type;
  std::unique_ptr<Backend> (*make)(c10::Device device);
};

std::atomic<const Accelerator*> the_accelerator{nullptr};  // never destroyed

}  // namespace

void set_accelerator(c10::DeviceType type, std::unique_ptr<Backend> (*make)(c10::Device device)) {
  RECOUP_CHECK(find_backend_type(type) != nullptr, "a type that is not in kBackendTypes");
  RECOUP_CHECK(the_accelerator.exchange(new Accelerator{.type = type, .make = make}) == nullptr);
}

std::optional<c10::DeviceType> accelerator() {
  const Accelerator* const found = the_accelerator;
  return found == nullptr ? std::nullopt : std::optional(found->type);
}

std::unique_ptr<Backend> make_backend(c10::Device device, c10::Allocator& allocator_of_cpu) {
  if (device.is_cpu()) {
    return std::make_unique<HostBackend>(allocator_of_cpu);
  }
  if (accelerator() != device.type()) {
    throw std::runtime_error(
        str_cat("recoup: GPU budgets are unavailable on ", device.str(),
                ": recoup found no GPUs of this type in this process. See docs/cuda.md"));
  }
  return the_accelerator.load()->make(device);
}

c10::Device with_index(c10::Device device) {
  return !device.has_index() && accelerator() == device.type()
             ? c10::impl::VirtualGuardImpl(device.type()).getDevice()
             : device;
}

}  // namespace recoup::detail
