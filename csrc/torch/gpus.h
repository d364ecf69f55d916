// Where the memory of all GPUs of the process comes from once recoup has been installed.
#pragma once

#include <c10/core/DeviceType.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "csrc/cuda/allocator.h"
#include "csrc/cuda/runtime.h"
#include "recoup/api.h"

namespace recoup::detail {

// PyTorch's devices of this type ask the functions below for their memory from now on: CUDA, or
// what stands for it in tests. Once in a process; throws std::logic_error the second time.
RECOUP_API void install_gpus(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime);

// None before that.
[[nodiscard]] std::optional<c10::DeviceType> gpu_type();
// Only after it.
[[nodiscard]] cuda::Allocator& gpu_allocator();

// The deleter of storages that the engine has given their bytes back.
void gpu_delete(void* memory);

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
