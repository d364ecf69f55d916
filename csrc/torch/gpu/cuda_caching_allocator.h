// PyTorch's interface of CUDA allocators, for a library that is loaded beside builds of PyTorch
// without CUDA too. The build looks into its header for the methods that only some versions have:
// RECOUP_CUDA_ALLOCATOR_..., in cmake/recoup-cuda.cmake.
#pragma once

// A file that builds with CUDA have, and that says nothing on Linux.
#define C10_CUDA_NO_CMAKE_CONFIGURE_FILE
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

// An inline method of the class below checks a call by functions of libc10_cuda.so, other ones in
// each version, which need not be there when we are loaded. We override it, so nobody calls it.
#pragma push_macro("C10_CUDA_CHECK")
#undef C10_CUDA_CHECK
#define C10_CUDA_CHECK(call) static_cast<void>(call)
#include <c10/cuda/CUDACachingAllocator.h>
#pragma pop_macro("C10_CUDA_CHECK")

namespace recoup::detail {

using CudaAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

}  // namespace recoup::detail
