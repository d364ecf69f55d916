// All device memory of the process: what PyTorch asks when recoup is its CUDA allocator.
//
//   torch -> Allocator -> the private pool that is filled from that stream: of a CUDA graph
//                      -> the scope of that device, while there is one and it wants the request
//                      -> its cache
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/cuda/cache.h"
#include "csrc/cuda/private_pools.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// A budget at work on one device. Called from any thread: what is const with the
// allocator's lock held, so they may not take one that is held around an allocation.
class Scope {
 public:
  virtual ~Scope() = default;

  // Whether a request of this thread is for the scope. What is not goes to the cache.
  [[nodiscard]] virtual bool wants(Bytes size) const = 0;
  [[nodiscard]] virtual void* allocate(Bytes size, Stream stream) = 0;
  // The rest is asked for as long as it has given memory that was not freed, left or not.
  [[nodiscard]] virtual bool owns(const void* memory) const = 0;
  [[nodiscard]] virtual bool empty() const = 0;  // nothing of it is in use
  // What it has from the driver, and what of it is in use. Of one that is open they may be a moment
  // old.
  [[nodiscard]] virtual Bytes reserved() const = 0;
  [[nodiscard]] virtual Bytes used() const = 0;
  virtual void free(void* memory) = 0;
  virtual void record_stream(void* memory, Stream stream) = 0;
};

// Thread safe.
class Allocator {
 public:
  explicit Allocator(std::unique_ptr<Runtime> runtime);

  // Null when the device has no more, or for a size of 0. Throws CudaError for a device that does
  // not exist, and for a stream that is being captured into a graph while no pool is filled from
  // it: what the graph's kernels use must stay where it is for as long as the graph, which nobody
  // tells.
  [[nodiscard]] void* allocate(Bytes size, int device, Stream stream);
  // Of any device. Null is nothing, for both.
  void free(void* memory);
  // `stream` is a handle of the memory's own device. Memory of others (DLPack) is left alone.
  void record_stream(void* memory, void* stream);
  // Whether it is memory in use of a cache or pool, or of a scope that was left.
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

  // At most one at a time on a device. Throws std::logic_error when there is one.
  void enter(int device, std::shared_ptr<Scope> scope);
  // It is asked for nothing new.
  void leave(int device);

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
  Runtime& runtime() { return *runtime_; }
  // Recounts everything; throws InternalError on the first difference.
  void check();

 private:
  struct Entry {
    // Shared with calls that are in it while another thread leaves.
    std::shared_ptr<Scope> scope;
    bool open = true;
  };

  struct Device {
    Device(Runtime& runtime, int index) : cache(runtime, index), pools(runtime, index) {}
    Cache cache;
    PrivatePools pools;
  };

  // Calls act(owner, device) with a scope, without the lock, or with a cache. Returns the scope's
  // device.
  template <class Act>
  std::optional<int> at_owner(const void* memory, Act&& act);
  // The rest with the lock held.
  Device& device_at(int index);
  // From the cache.
  [[nodiscard]] void* allocate_outside(Device& device, Bytes size, Stream stream);
  // Null when there is none at work that wants it.
  [[nodiscard]] std::shared_ptr<Scope> scope_for(int device, Bytes size) const;
  struct Found {
    std::shared_ptr<Scope> scope;  // null: it came from a cache
    int device = 0;
  };
  [[nodiscard]] Found find_scope(const void* memory) const;
  Usage& measure(int device);
  [[nodiscard]] bool is_known(const void* memory);
  // The cache or pool that owns() it, and its device; null when none does.
  [[nodiscard]] std::pair<Cache*, int> find_cache(const void* memory);
  // Those that have left and hold nothing; to be destroyed without the lock.
  [[nodiscard]] std::vector<Entry> take_ended(int device);

  std::unique_ptr<Runtime> runtime_;
  std::mutex mutex_;
  std::map<int, Device> devices_;
  std::map<int, std::vector<Entry>> scopes_;  // the open one last
  std::map<int, Usage> usage_;                // as measured last
};

}  // namespace recoup::detail::cuda
