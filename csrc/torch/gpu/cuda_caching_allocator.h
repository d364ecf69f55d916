// PyTorch's interface of CUDA allocators, for a library that also runs with builds of PyTorch
// without CUDA. The build checks the interface's header for methods that only some versions have:
// RECOUP_CUDA_ALLOCATOR_..., in cmake/recoup-cuda.cmake.
#pragma once

// That file exists only in builds with CUDA, and has no effect on Linux.
#define C10_CUDA_NO_CMAKE_CONFIGURE_FILE
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

// An inline method of the class below checks a call with functions of libc10_cuda.so, which differ
// between versions and may be missing when recoup is loaded. recoup overrides the method, so it is
// never called.
#pragma push_macro("C10_CUDA_CHECK")
#undef C10_CUDA_CHECK
#define C10_CUDA_CHECK(call) static_cast<void>(call)
#include <c10/cuda/CUDACachingAllocator.h>
#pragma pop_macro("C10_CUDA_CHECK")

namespace recoup::detail {

using CudaAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

}  // namespace recoup::detail
