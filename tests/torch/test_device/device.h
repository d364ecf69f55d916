// A PyTorch device without a GPU: its memory and streams are those of FakeCuda, and its kernels are
// the CPU's.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "tests/core/cuda/fake_cuda.h"

namespace recoup::test_device {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

// Registers the devices; from then on they can have budgets. Call it once per process. `allocator`
// is "native", or "expandable" for native with expandable segments.
void install(const detail::cuda::FakeCuda::Options& options, const std::string& allocator);
detail::cuda::FakeCuda& fake();

// These apply to the calling thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
detail::cuda::Stream current_stream(c10::DeviceIndex device);

detail::cuda::Stream native_stream(const c10::Stream& stream);

// Waits on the host for the stream. Tests do not count these synchronizations.
void wait_for(detail::cuda::Stream stream);
std::int64_t own_synchronizations();

// The allocator that kernels use.
c10::Allocator* allocator();
// Grows or shrinks a storage and keeps the bytes that fit.
void resize_storage(c10::StorageImpl& storage, std::size_t size);
// Writes the bytes asynchronously, in the order of the device's current stream.
void write_late(c10::DeviceIndex device, void* to, const void* from, std::size_t size);

}  // namespace recoup::test_device
