#include "csrc/torch/gpu/gpus.h"

#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"
#include "csrc/torch/backend/uncaptured_stream.h"

namespace recoup::detail {
namespace {

Gpus* the_gpus = nullptr;

}  // namespace

Gpus& Gpus::install(c10::DeviceType type, std::unique_ptr<cuda::Runtime> runtime) {
  if (the_gpus != nullptr) {
    throw std::logic_error("the GPUs of this process are already registered with recoup");
  }
  the_gpus = new Gpus(type, std::move(runtime));
  return *the_gpus;
}

void* Gpus::allocate(Bytes size, int device, cuda::Stream stream) {
  if (const auto& kernel = UncapturedStream::current(); kernel && kernel->stream == stream) {
    const auto nbytes = static_cast<std::size_t>(size.count());
    return kernel->memory->in_scope(nbytes) ? kernel->memory->allocate(nbytes, stream) : nullptr;
  }
  const std::shared_ptr<cuda::Scope> scope = scopes_.wanting(device, size);
  if (scope == nullptr) {
    return nullptr;
  }
  if (runtime_->capturing(stream) && !scope->capturing()) {
    throw std::runtime_error(cuda::no_capture_in_budget(str_cat("cuda:", device)));
  }
  return scope->allocate(size, stream);
}

bool Gpus::in_budget(int device) const { return scopes_.wanting(device, Bytes(1)) != nullptr; }

bool Gpus::owns(const void* memory) const { return scopes_.owns(memory); }

bool Gpus::record_stream(void* memory, void* stream) {
  return scopes_.record_stream(memory, stream);
}

bool Gpus::free(void* memory) {
  const bool of_budget = scopes_.free(memory);
  if (of_budget) {
    detach_if_unused();
  }
  return of_budget;
}

void Gpus::require_no_budget(int device) const {
  const std::shared_ptr<cuda::Scope> scope = scopes_.wanting(device, Bytes(1));
  if (scope != nullptr && !scope->capturing()) {
    throw std::runtime_error(cuda::no_pool_in_budget(str_cat("cuda:", device)));
  }
}

bool Gpus::copy_between(cuda::Stream stream, void* to, int to_device, const void* from,
                        int from_device, Bytes size) {
  if (!owns(to) && !owns(from)) {
    return false;
  }
  runtime_->copy_between(stream, to, to_device, from, from_device, size);
  return true;
}

bool Gpus::is_outside(const c10::DataPtr& data) {
  const void* const memory = data.get();
  return memory != nullptr && (owns(memory) ? scopes_.owns_left(memory) : outside_->owns(data));
}

Bytes Gpus::outside_bytes(int device) {
  return outside_->usage(device).reserved + scopes_.usage(device).left;
}

void Gpus::enter(int device, std::shared_ptr<cuda::Scope> scope) {
  const std::lock_guard lock(attaching_);
  outside_->attach();
  scopes_.enter(device, std::move(scope));
}

void Gpus::leave(int device) {
  scopes_.leave(device);
  detach_if_unused();
}

void Gpus::end_capture() {
  scopes_.end_capture();
  detach_if_unused();
}

// A thread that has loaded the decorator's address before still calls it; it forwards every request
// then.
void Gpus::detach_if_unused() {
  if (!scopes_.empty()) {
    return;
  }
  const std::lock_guard lock(attaching_);
  if (scopes_.empty()) {
    outside_->detach();
  }
}

Gpus& gpus() {
  RECOUP_CHECK(the_gpus != nullptr);
  return *the_gpus;
}

void gpu_delete(void* memory) {
  RECOUP_CHECK(gpus().free(memory), "memory that no budget has given");
}

}  // namespace recoup::detail
