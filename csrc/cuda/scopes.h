// Scopes: the budgets on GPUs. Dispatches requests for memory, and finds the scope of an address.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/base/fast_mutex.h"
#include "csrc/cuda/outside_segment.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// A budget in force on one device. Called from any thread. Const functions are called with the lock
// of Scopes held, so they must not take a lock that is held during an allocation.
class Scope {
 public:
  virtual ~Scope() = default;

  // Whether a request of this thread is for the scope.
  [[nodiscard]] virtual bool wants(Bytes size) const = 0;
  [[nodiscard]] virtual void* allocate(Bytes size, Stream stream) = 0;
  // The following functions are called as long as memory of the scope is in use, even after it was
  // left.
  [[nodiscard]] virtual bool owns(const void* memory) const = 0;
  [[nodiscard]] virtual bool empty() const = 0;  // no memory of it is in use
  // Bytes that it has from the driver, and bytes of these that are in use. For a scope in force
  // they may be slightly out of date.
  [[nodiscard]] virtual Bytes reserved() const = 0;
  [[nodiscard]] virtual Bytes used() const = 0;
  // Its memory if the scope has ended and cannot be resumed.
  [[nodiscard]] virtual std::optional<OutsideSegment> left_segment() const { return std::nullopt; }
  // Whether it has prepared itself for the capture of a CUDA graph that is under way.
  [[nodiscard]] virtual bool capturing() const = 0;
  virtual void free(void* memory) = 0;
  virtual void record_stream(void* memory, Stream stream) = 0;
};

// Thread safe. A scope is listed from its beginning until it was left and none of its memory is in
// use. Scope::free and Scope::empty must be safe to call at the same time: a scope is removed by
// the last of `leave` and the frees of its memory.
class Scopes {
 public:
  // The scope in force on the device that accepts the request; null if there is none.
  [[nodiscard]] std::shared_ptr<Scope> wanting(int device, Bytes size) const;
  // Whether the address belongs to a scope, in force or left.
  [[nodiscard]] bool owns(const void* memory) const;
  // Whether the address belongs to a scope that was left.
  [[nodiscard]] bool owns_left(const void* memory) const;
  // False if the memory belongs to no scope; then nothing has happened. The same below.
  bool free(void* memory);
  // `stream` is a handle of the memory's own device.
  bool record_stream(void* memory, void* stream);

  // At most one scope is in force per device. Throws std::logic_error if there is one.
  void enter(int device, std::shared_ptr<Scope> scope);
  // The scope gets no new requests.
  void leave(int device);
  // A CUDA graph is captured, or a memory pool is filled, until end_capture: the driver unmaps no
  // memory meanwhile, so memory of scopes that were left is freed afterwards.
  void begin_capture();
  void end_capture();
  // Whether there is no scope, neither in force nor left.
  [[nodiscard]] bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

  struct Usage {
    Bytes left;      // bytes that scopes that were left have from the driver
    Bytes reserved;  // the same, including the scope in force
    Bytes used;
  };
  [[nodiscard]] Usage usage(int device) const;
  // The memory of the scopes on the device that have ended.
  [[nodiscard]] std::vector<OutsideSegment> left_segments(int device) const;
  // Throws InternalError if a device has two scopes in force.
  void check() const;

 private:
  struct Entry {
    // Shared with calls that use it while another thread leaves.
    std::shared_ptr<Scope> scope;
    bool open = true;
  };
  struct Found {
    std::shared_ptr<Scope> scope;  // null: none found
    int device = 0;
    bool open = false;
  };

  [[nodiscard]] Found find(const void* memory) const;  // takes the lock
  // Whether the memory, of a scope that was left, is freed by end_capture().
  [[nodiscard]] bool defer(void* memory);
  // Removes the scopes that were left and hold nothing; they must be destroyed without the lock.
  // None while a graph is captured.
  [[nodiscard]] std::vector<Entry> take_ended(int device);

  mutable FastMutex mutex_;
  std::map<int, std::vector<Entry>> scopes_;  // the one in force last
  std::atomic<int> count_{0};                 // listed scopes
  std::atomic<int> left_{0};                  // those of them that are not in force
  int captures_ = 0;                          // under way, in all threads
  std::vector<void*> freed_;                  // during these, of scopes that were left
};

}  // namespace recoup::detail::cuda
