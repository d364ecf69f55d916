// Budgets on GPUs: which of them gets a request for memory, and which has given an address.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// A budget at work on one device. Called from any thread: what is const with the lock of Scopes
// held, so they may not take one that is held around an allocation.
class Scope {
 public:
  virtual ~Scope() = default;

  // Whether a request of this thread is for the scope.
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

// Thread safe. A scope is here from its beginning until it was left and nothing of it is in use.
class Scopes {
 public:
  // The open scope of the device that wants the request; null when there is none.
  [[nodiscard]] std::shared_ptr<Scope> wanting(int device, Bytes size) const;
  // Whether the address is of a scope, open or left.
  [[nodiscard]] bool owns(const void* memory) const;
  // Whether it is of one that was left.
  [[nodiscard]] bool owns_left(const void* memory) const;
  // False when it is no scope's; then nothing has happened, here and below.
  bool free(void* memory);
  // `stream` is a handle of the memory's own device.
  bool record_stream(void* memory, void* stream);

  // At most one at a time on a device. Throws std::logic_error when there is one.
  void enter(int device, std::shared_ptr<Scope> scope);
  // It is asked for nothing new.
  void leave(int device);
  // Whether there is none, neither open nor left.
  [[nodiscard]] bool empty() const { return count_.load(std::memory_order_acquire) == 0; }

  struct Usage {
    Bytes left;      // what those that were left have from the driver
    Bytes reserved;  // and the open one too
    Bytes used;
  };
  [[nodiscard]] Usage usage(int device) const;
  // Throws InternalError when there are two open ones on a device.
  void check() const;

 private:
  struct Entry {
    // Shared with calls that are in it while another thread leaves.
    std::shared_ptr<Scope> scope;
    bool open = true;
  };
  struct Found {
    std::shared_ptr<Scope> scope;  // null: there is none
    int device = 0;
    bool open = false;
  };

  [[nodiscard]] Found find(const void* memory) const;  // takes the lock
  // Those that have left and hold nothing; to be destroyed without the lock.
  [[nodiscard]] std::vector<Entry> take_ended(int device);

  mutable std::mutex mutex_;
  std::map<int, std::vector<Entry>> scopes_;  // the open one last
  std::atomic<int> count_{0};
};

}  // namespace recoup::detail::cuda
