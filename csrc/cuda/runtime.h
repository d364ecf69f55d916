// CUDA as recoup needs it. The toolkit's runtime implements it, and a double without a GPU.
//
// Streams run their work in order and apart from each other; nothing here waits on the host, unless
// it says so. Threads may call at the same time.
#pragma once

#include <optional>

#include "recoup/types.h"

namespace recoup::detail::cuda {

// A cudaStream_t of a device; null is its default stream. It belongs to whoever made it.
struct Stream {
  void* handle = nullptr;
  int device = 0;
  friend auto operator<=>(const Stream&, const Stream&) = default;
  friend bool operator==(const Stream&, const Stream&) = default;
};

// A cudaEvent_t.
struct Event {
  void* handle = nullptr;
  friend auto operator<=>(const Event&, const Event&) = default;
  friend bool operator==(const Event&, const Event&) = default;
};

struct DeviceMemory {
  Bytes free;
  Bytes total;
};

// Methods throw CudaError when the driver reports a failure, but for those that give something
// back: at the end of a process the driver may be gone before us.
class Runtime {
 public:
  virtual ~Runtime() = default;

  [[nodiscard]] virtual int device_count() = 0;
  [[nodiscard]] virtual DeviceMemory memory(int device) = 0;
  // Memory of the device, aligned to 512 bytes at least; null when it has not so much.
  [[nodiscard]] virtual void* allocate(int device, Bytes size) = 0;
  // Waits until the device is done with all that it was given.
  virtual void release(int device, void* memory) noexcept = 0;

  // Addresses apart from the memory behind them. All sizes and addresses here are multiples of the
  // granularity: the unit in which memory is mapped.
  [[nodiscard]] virtual Bytes granularity(int device) = 0;
  // Addresses without memory.
  [[nodiscard]] virtual void* reserve(int device, Bytes size) = 0;
  // What one reserve() gave, with nothing mapped.
  virtual void unreserve(int device, void* addresses, Bytes size) noexcept = 0;
  // Puts memory of the device behind reserved addresses, for that device alone to read and write;
  // false when it has not so much. When it does not return true nothing has changed.
  [[nodiscard]] virtual bool map(int device, void* at, Bytes size) = 0;
  // What one map() mapped. Waits until the device is done with all that it was given.
  virtual void unmap(int device, void* at, Bytes size) noexcept = 0;

  // A stream of our own, which does not wait for the default stream by itself.
  [[nodiscard]] virtual Stream create_stream(int device) = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;

  // An event tells when the work that a stream had been given before record() is done. `timed`: it
  // can be asked by elapsed() too.
  [[nodiscard]] virtual Event create_event(int device, bool timed) = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  // The event is of the stream's device. It may be recorded again: who waits already waits for what
  // was recorded when it was told to.
  virtual void record(Event event, Stream stream) = 0;
  [[nodiscard]] virtual bool done(Event event) = 0;
  // The host waits until it is.
  virtual void synchronize(Event event) = 0;
  // What `stream` is given from now on runs after the event, which may be of another device.
  virtual void wait(Stream stream, Event event) = 0;
  // Device time between two timed events, both done.
  [[nodiscard]] virtual Nanoseconds elapsed(Event from, Event to) = 0;

  // In the order of the stream. The ranges do not overlap; each is on the device or pinned memory
  // of the host.
  virtual void copy(Stream stream, void* to, const void* from, Bytes size) = 0;
  // The same between two devices, of which `stream` is one's; they need no access to each other.
  virtual void copy_between(Stream stream, void* to, int to_device, const void* from,
                            int from_device, Bytes size) = 0;
  // Memory of the host that copies need not wait for; null when there is not so much.
  [[nodiscard]] virtual void* allocate_pinned(Bytes size) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  // The host waits until the stream is done.
  virtual void synchronize(Stream stream) = 0;
  // Whether what the stream is given becomes part of a graph instead of running.
  [[nodiscard]] virtual bool capturing(Stream stream) = 0;
};

}  // namespace recoup::detail::cuda
