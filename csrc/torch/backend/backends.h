// The devices of the process on which budgets are possible.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>

#include "csrc/torch/backend/backend.h"

namespace recoup::detail {

// Enables budgets on PyTorch's devices of one type besides the CPU, PyTorch's accelerator. `make`
// creates the backend of a session; it throws std::runtime_error or std::invalid_argument, with a
// remedy, if there can be no budget on the device. Call it at most once in a process. The type must
// be among kBackendTypes.
void set_accelerator(c10::DeviceType type, std::unique_ptr<Backend> (*make)(c10::Device device));
// None before set_accelerator().
[[nodiscard]] std::optional<c10::DeviceType> accelerator();

// The backend of a session. Throws std::runtime_error for a device on which there can be no budget,
// and what `make` throws. `allocator_of_cpu`: see StorageHooks.
[[nodiscard]] std::unique_ptr<Backend> make_backend(c10::Device device,
                                                    c10::Allocator& allocator_of_cpu);

// The device with an index: "cuda" is the calling thread's current one. Does not change a
// device that is no accelerator.
[[nodiscard]] c10::Device with_index(c10::Device device);

}  // namespace recoup::detail
