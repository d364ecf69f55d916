// All device memory of the process: what PyTorch asks when recoup is its CUDA allocator, which is
// so under RECOUP_GPUS=pluggable alone.
//
//   torch -> Allocator -> the private pool that is filled from that stream: of a CUDA graph
//                      -> the scope of that device, while there is one and it wants the request
//                      -> its cache
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "csrc/cuda/cache.h"
#include "csrc/cuda/private_pools.h"
#include "csrc/cuda/runtime.h"
#include "csrc/cuda/scopes.h"

namespace recoup::detail::cuda {

// Thread safe.
class Allocator {
 public:
  // Both must outlive it.
  Allocator(Runtime& runtime, Scopes& scopes) : runtime_(runtime), scopes_(scopes) {}

  // Null when the device has no more, or for a size of 0. Throws CudaError for a device that does
  // not exist, and for a stream that is being captured into a graph while no pool is filled from
  // it: what the graph's kernels use must stay where it is for as long as the graph, which nobody
  // tells.
  [[nodiscard]] void* allocate(Bytes size, int device, Stream stream);
  // Of any device. Null is nothing, for both.
  void free(void* memory);
  // `stream` is a handle of the memory's own device. Memory of others (DLPack) is left alone.
  void record_stream(void* memory, void* stream);
  // Whether it is memory in use of a cache or pool.
  [[nodiscard]] bool owns(const void* memory);
  // Pools that have a user keep theirs.
  void empty_cache();

  // As PrivatePools has them: what PyTorch asks of its allocator around the capture of a CUDA
  // graph, and when the graph is gone. Filters are called with the lock held. Beginning also throws
  // CudaError for a device that does not exist, and std::runtime_error when there is a scope that
  // wants what the calling thread asks for: in a graph nothing may be evicted or moved.
  void begin_pool(int device, PrivatePools::Id id, PrivatePools::Filter filter);
  void end_pool(int device, PrivatePools::Id id);
  void release_pool(int device, PrivatePools::Id id);

  struct Usage {
    Bytes outside;   // from the driver, without that of the open scope
    Bytes reserved;  // all of it
    Bytes used;
    Bytes peak_reserved;
    Bytes peak_used;
  };
  [[nodiscard]] Usage usage(int device);
  // The peaks are what is now.
  void reset_peaks(int device);
  // Recounts everything; throws InternalError on the first difference.
  void check();

 private:
  struct Device {
    Device(Runtime& runtime, int index) : cache(runtime, index), pools(runtime, index) {}
    Cache cache;
    PrivatePools pools;
  };

  // The rest with the lock held.
  Device& device_at(int index);
  // From the cache.
  [[nodiscard]] void* allocate_outside(Device& device, Bytes size, Stream stream);
  Usage& measure(int device);
  // The cache or pool that owns() it, and its device; null when none does.
  [[nodiscard]] std::pair<Cache*, int> find_cache(const void* memory);

  Runtime& runtime_;
  Scopes& scopes_;
  std::mutex mutex_;
  std::map<int, Device> devices_;
  std::map<int, Usage> usage_;  // as measured last
};

}  // namespace recoup::detail::cuda
