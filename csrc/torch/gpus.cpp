#include "csrc/torch/gpus.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

struct Gpus {
  Gpus(c10::DeviceType gpu_type, std::unique_ptr<cuda::Runtime> runtime)
      : type(gpu_type), allocator(std::move(runtime)) {}
  c10::DeviceType type;
  cuda::Allocator allocator;
};

// Set once, and never destroyed: storages may die after static destructors have run.
Gpus* gpus = nullptr;

[[noreturn]] void throw_out_of_memory(Bytes asked, int device) {
  const cuda::DeviceMemory memory = gpus->allocator.runtime().memory(device);
  const cuda::Allocator::Usage usage = gpus->allocator.usage(device);
  C10_THROW_ERROR(OutOfMemoryError,
                  str_cat("recoup: GPU ", device, " has not the ", to_string(asked),
                          " that were asked for: ", to_string(memory.free), " of its ",
                          to_string(memory.total), " are free, and ", to_string(usage.used),
                          " are in use by tensors outside of any budget. Inside of a "
                          "recoup.budget memory is made by evicting what can be computed again"));
}

}  // namespace

void install_gpus(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime) {
  if (gpus != nullptr) {
    throw std::logic_error("recoup gives the GPUs their memory already");
  }
  gpus = new Gpus(type, std::move(runtime));
}

std::optional<c10::DeviceType> gpu_type() {
  return gpus == nullptr ? std::nullopt : std::optional(gpus->type);
}

cuda::Allocator& gpu_allocator() {
  RECOUP_CHECK(gpus != nullptr);
  return gpus->allocator;
}

void gpu_delete(void* memory) { gpus->allocator.free(memory); }

}  // namespace recoup::detail

using recoup::Bytes;
using recoup::detail::gpus;

void* recoup_cuda_malloc(ssize_t size, int device, void* stream) {
  void* const memory =
      gpus->allocator.allocate(Bytes(size), device, {.handle = stream, .device = device});
  if (memory == nullptr && size > 0) {
    recoup::detail::throw_out_of_memory(Bytes(size), device);
  }
  return memory;
}

void recoup_cuda_free(void* memory, ssize_t /*size*/, int /*device*/, void* /*stream*/) {
  gpus->allocator.free(memory);
}

void recoup_cuda_record_stream(void* memory, void* stream) {
  gpus->allocator.record_stream(memory, stream);
}

void recoup_cuda_empty_cache() { gpus->allocator.empty_cache(); }

void recoup_cuda_begin_pool(int device, std::pair<unsigned long long, unsigned long long> pool,
                            std::function<bool(CUstream_st*)> filter) {
  gpus->allocator.begin_pool(device, pool,
                             [filter = std::move(filter)](recoup::detail::cuda::Stream stream) {
                               return filter(static_cast<CUstream_st*>(stream.handle));
                             });
}

void recoup_cuda_end_pool(int device, std::pair<unsigned long long, unsigned long long> pool) {
  gpus->allocator.end_pool(device, pool);
}

void recoup_cuda_release_pool(int device, std::pair<unsigned long long, unsigned long long> pool) {
  gpus->allocator.release_pool(device, pool);
}
