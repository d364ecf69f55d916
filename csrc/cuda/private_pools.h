// Device memory apart from the rest: of one CUDA graph, or of several that share a pool.
//
// A graph's kernels use the addresses that they were captured with, also those of tensors that died
// during the capture. So what a pool has from the device is used again in that pool alone, and
// stays until the last graph is gone and nothing in it is in use.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "csrc/cuda/cache.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Of one device. Not thread safe: its owner has a lock.
class PrivatePools {
 public:
  using Id = std::pair<unsigned long long, unsigned long long>;  // PyTorch's
  using Filter = std::function<bool(Stream)>;

  // The runtime must outlive it.
  PrivatePools(Runtime& runtime, int device);

  // From now on the pool gets the requests on the streams that the filter holds for, and has one
  // user more. A pool that is not there is made. Throws std::logic_error when it is filled already.
  void begin(Id id, Filter filter);
  // It gets none any more. Throws std::logic_error when it got none.
  void end(Id id);
  // One of its users is gone. Throws std::logic_error when there is no such pool, or no user.
  void release(Id id);
  // Gives the device what pools without a user do not use; they go when they have nothing. While a
  // pool is filled that waits for a later call: memory is given back only when the device is done,
  // and a device on which a graph is captured cannot be waited for.
  void give_back();
  // The same at once, for a program that asks for it.
  void give_back_now();

  // The pool that gets a request on the stream; null when none does. Throws what filters throw.
  [[nodiscard]] Cache* filled_by(Stream stream);
  // The pool that owns() the memory; null when none does.
  [[nodiscard]] Cache* owner(const void* memory);
  // Whether any gets requests.
  [[nodiscard]] bool filling() const { return !filling_.empty(); }
  [[nodiscard]] Bytes reserved() const;
  [[nodiscard]] Bytes used() const;
  // Recounts everything; throws InternalError on the first difference.
  void check() const;

 private:
  struct Pool {
    Pool(Runtime& runtime, int device) : cache(runtime, device) {}
    Cache cache;
    int users = 0;
  };
  struct Filling {
    Id id;
    Filter filter;
  };

  [[nodiscard]] std::vector<Filling>::iterator find_filling(Id id);

  Runtime& runtime_;
  int device_;
  std::map<Id, Pool> pools_;
  std::vector<Filling> filling_;  // in the order of begin()
};

}  // namespace recoup::detail::cuda
