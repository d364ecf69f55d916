// All device memory of the process: what PyTorch asks when recoup is its CUDA allocator.
//
//   torch -> Allocator -> the scope of that device, while there is one and it wants the request
//                      -> its cache
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "csrc/cuda/cache.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// A budget at work on one device. Called without the allocator's lock, from any thread.
class Scope {
 public:
  virtual ~Scope() = default;

  // Whether a request of this thread is for the scope. What is not goes to the cache.
  [[nodiscard]] virtual bool wants(Bytes size) const = 0;
  [[nodiscard]] virtual void* allocate(Bytes size, Stream stream) = 0;
  // The rest is asked until the scope has left and all that it gave is freed.
  [[nodiscard]] virtual bool owns(const void* memory) const = 0;
  virtual void free(void* memory) = 0;
  virtual void record_stream(void* memory, Stream stream) = 0;
};

// Thread safe.
class Allocator {
 public:
  explicit Allocator(std::unique_ptr<Runtime> runtime);

  // Null when the device has no more. Throws CudaError for a device that does not exist, and for a
  // stream that is being captured into a graph: what the graph's kernels use must stay where it is
  // for as long as the graph, which nobody tells.
  [[nodiscard]] void* allocate(Bytes size, int device, Stream stream);
  // Null is nothing.
  void free(void* memory, int device);
  void record_stream(void* memory, int device, Stream stream);
  void empty_cache();

  // At most one a device; it must outlive its entry. Throws std::logic_error when there is one.
  void enter(int device, Scope& scope);
  void leave(int device);

  struct Usage {
    Bytes reserved;  // from the driver, without that of scopes
    Bytes used;
  };
  [[nodiscard]] Usage usage(int device);
  Runtime& runtime() { return *runtime_; }
  // Recounts everything; throws InternalError on the first difference.
  void check();

 private:
  Cache& cache(int device);  // with the lock held
  [[nodiscard]] Scope* scope(int device);

  std::unique_ptr<Runtime> runtime_;
  std::mutex mutex_;
  std::map<int, Cache> caches_;
  std::map<int, Scope*> scopes_;
};

}  // namespace recoup::detail::cuda
