#include "csrc/torch/pluggable.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

class PluggableMemory final : public OutsideMemory {
 public:
  explicit PluggableMemory(Gpus& gpus) : allocator_(gpus.runtime(), gpus.scopes()) {}

  // PyTorch asks recoup for everything, inside of scopes and outside.
  void attach() override {}
  void detach() override {}
  [[nodiscard]] c10::Allocator* allocator_in_scopes() override { return nullptr; }

  void* allocate(Bytes size, int device, cuda::Stream stream) override {
    return allocator_.allocate(size, device, stream);
  }
  void free(void* memory) override { allocator_.free(memory); }
  bool owns(const c10::DataPtr& data) override { return allocator_.owns(data.get()); }
  void record_stream(void* memory, const c10::Stream& stream) override {
    allocator_.record_stream(
        memory, c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream));
  }
  void empty_cache() override { allocator_.empty_cache(); }
  Usage usage(int device) override {
    const cuda::Allocator::Usage all = allocator_.usage(device);
    const cuda::Scopes::Usage scopes = gpus().scopes().usage(device);
    return {.reserved = all.reserved - scopes.reserved, .used = all.used - scopes.used};
  }
  void check() override { allocator_.check(); }

  [[nodiscard]] cuda::Allocator& allocator() { return allocator_; }

 private:
  cuda::Allocator allocator_;
};

// Set once; the GPUs own it and are never destroyed.
cuda::Allocator* the_allocator = nullptr;

cuda::Allocator& gpu_allocator() {
  RECOUP_CHECK(the_allocator != nullptr);
  return *the_allocator;
}

[[noreturn]] void throw_out_of_memory(Bytes asked, int device) {
  const cuda::DeviceMemory memory = gpus().runtime().memory(device);
  const cuda::Allocator::Usage usage = gpu_allocator().usage(device);
  C10_THROW_ERROR(OutOfMemoryError,
                  str_cat("recoup: GPU ", device, " does not have the ", to_string(asked),
                          " that were asked for: ", to_string(memory.free), " of its ",
                          to_string(memory.total), " are free, and ", to_string(usage.used),
                          " are in use by tensors outside of any budget. Inside of a "
                          "recoup.budget memory is made by evicting what can be computed again"));
}

}  // namespace

void use_pluggable(Gpus& gpus) {
  auto memory = std::make_unique<PluggableMemory>(gpus);
  the_allocator = &memory->allocator();
  gpus.set_outside(std::move(memory));
}

cuda::Allocator* pluggable_allocator() { return the_allocator; }

}  // namespace recoup::detail

using recoup::Bytes;
using recoup::detail::gpu_allocator;

void* recoup_cuda_malloc(ssize_t size, int device, void* stream) {
  void* const memory =
      gpu_allocator().allocate(Bytes(size), device, {.handle = stream, .device = device});
  if (memory == nullptr && size > 0) {
    recoup::detail::throw_out_of_memory(Bytes(size), device);
  }
  return memory;
}

void recoup_cuda_free(void* memory, ssize_t /*size*/, int /*device*/, void* /*stream*/) {
  gpu_allocator().free(memory);
}

void recoup_cuda_record_stream(void* memory, void* stream) {
  gpu_allocator().record_stream(memory, stream);
}

void recoup_cuda_empty_cache() { gpu_allocator().empty_cache(); }

void recoup_cuda_begin_pool(int device, std::pair<unsigned long long, unsigned long long> pool,
                            std::function<bool(CUstream_st*)> filter) {
  gpu_allocator().begin_pool(device, pool,
                             [filter = std::move(filter)](recoup::detail::cuda::Stream stream) {
                               return filter(static_cast<CUstream_st*>(stream.handle));
                             });
}

void recoup_cuda_end_pool(int device, std::pair<unsigned long long, unsigned long long> pool) {
  gpu_allocator().end_pool(device, pool);
}

void recoup_cuda_release_pool(int device, std::pair<unsigned long long, unsigned long long> pool) {
  gpu_allocator().release_pool(device, pool);
}
