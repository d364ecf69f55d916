// A PyTorch device without a GPU: memory and streams are those of the double of the CUDA runtime,
// kernels are the CPU's.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "tests/core/cuda/fake_cuda.h"

namespace recoup::test_device {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

// Once in a process: these devices can have budgets from now on. `allocator` is "native", or
// "expandable": native with expandable segments.
void install(const detail::cuda::FakeCuda::Options& options, const std::string& allocator);
detail::cuda::FakeCuda& fake();

// Of this thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
detail::cuda::Stream current_stream(c10::DeviceIndex device);

detail::cuda::Stream native_stream(const c10::Stream& stream);

// The host waits for it. Not among the synchronizations that tests count.
void wait_for(detail::cuda::Stream stream);
std::int64_t own_synchronizations();

// What kernels take memory from.
c10::Allocator* allocator();
// More bytes, or fewer; what fits is kept.
void resize_storage(c10::StorageImpl& storage, std::size_t size);
// The bytes arrive late, in the order of the current stream of the device.
void write_late(c10::DeviceIndex device, void* to, const void* from, std::size_t size);

}  // namespace recoup::test_device
