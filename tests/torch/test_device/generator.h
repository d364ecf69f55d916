// Random numbers of the device: a seed and an offset, as with Philox.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>

namespace recoup::test_device {

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);
// Returns the seed for the CPU's random numbers of one op, and advances the generator.
std::uint64_t next_seed(at::Generator generator);

}  // namespace recoup::test_device
