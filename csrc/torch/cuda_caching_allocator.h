// PyTorch's interface of CUDA allocators, for a library that is loaded beside builds of PyTorch
// without CUDA too; and what differs in it between versions.
#pragma once

#include <torch/headeronly/version.h>

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

// CUDAAllocator::supportsUserMetadata and annotateMemory.
#define RECOUP_CUDA_ALLOCATOR_ANNOTATES \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 14))

namespace recoup::detail {

using CudaAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

}  // namespace recoup::detail
