// recoup as PyTorch's CUDA allocator by the pluggable interface, under RECOUP_GPUS=pluggable.
#pragma once

#include <sys/types.h>

#include <functional>
#include <utility>

#include "csrc/cuda/allocator.h"
#include "csrc/torch/gpus.h"
#include "recoup/api.h"

namespace recoup::detail {

// What is outside of budgets comes from recoup's own cache. PyTorch's devices must ask the
// functions below from now on. Once in a process.
RECOUP_API void use_pluggable(Gpus& gpus);
// Null when it is not in use.
[[nodiscard]] cuda::Allocator* pluggable_allocator();

}  // namespace recoup::detail

struct CUstream_st;  // CUDA's, without its headers

// What torch.cuda.memory.CUDAPluggableAllocator takes. They throw c10::OutOfMemoryError, or
// std::runtime_error when CUDA fails.
extern "C" {
RECOUP_API void* recoup_cuda_malloc(ssize_t size, int device, void* stream);
RECOUP_API void recoup_cuda_free(void* memory, ssize_t size, int device, void* stream);
RECOUP_API void recoup_cuda_record_stream(void* memory, void* stream);
RECOUP_API void recoup_cuda_empty_cache();
// Around the capture of a CUDA graph, and when the graph is gone: cuda::Allocator says what they
// throw. The pool is a c10::MempoolId_t.
RECOUP_API void recoup_cuda_begin_pool(int device,
                                       std::pair<unsigned long long, unsigned long long> pool,
                                       std::function<bool(CUstream_st*)> filter);
RECOUP_API void recoup_cuda_end_pool(int device,
                                     std::pair<unsigned long long, unsigned long long> pool);
RECOUP_API void recoup_cuda_release_pool(int device,
                                         std::pair<unsigned long long, unsigned long long> pool);
}
