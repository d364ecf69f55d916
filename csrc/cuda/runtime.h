// Runtime: the CUDA functions that recoup needs. Implemented by the toolkit's runtime, and by a
// test double without a GPU.
//
// Each stream executes its work in order, and independently of other streams. Functions do not
// block the host unless stated. Thread safe.
#pragma once

#include <optional>

#include "recoup/types.h"

namespace recoup::detail::cuda {

// A cudaStream_t of a device; null is its default stream. Not owned.
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

// Methods throw CudaError if the driver reports a failure, except those that release something: at
// the end of a process the driver may already be gone.
class Runtime {
 public:
  virtual ~Runtime() = default;

  [[nodiscard]] virtual int device_count() = 0;
  [[nodiscard]] virtual DeviceMemory memory(int device) = 0;
  // Memory of the device, aligned to at least 512 bytes; null if the device has not enough.
  [[nodiscard]] virtual void* allocate(int device, Bytes size) = 0;
  // Waits until the device has finished all work.
  virtual void release(int device, void* memory) noexcept = 0;

  // Reserving addresses is separate from mapping memory. All sizes and addresses here are multiples
  // of the granularity, which is the unit of mappings.
  [[nodiscard]] virtual Bytes granularity(int device) = 0;
  // Reserves addresses without memory.
  [[nodiscard]] virtual void* reserve(int device, Bytes size) = 0;
  // Releases the addresses of one reserve(), with nothing mapped.
  virtual void unreserve(int device, void* addresses, Bytes size) noexcept = 0;
  // Maps memory of the device at reserved addresses, for access by that device; false if it has not
  // enough. If it does not return true, nothing has changed.
  [[nodiscard]] virtual bool map(int device, void* at, Bytes size) = 0;
  // Unmaps the memory of one map(). Waits until the device has finished all work.
  virtual void unmap(int device, void* at, Bytes size) noexcept = 0;

  // A stream that does not synchronize with the default stream.
  [[nodiscard]] virtual Stream create_stream(int device) = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;

  // An event is done when the work that its stream was given before record() is done. `timed`:
  // elapsed() may be called for it.
  [[nodiscard]] virtual Event create_event(int device, bool timed) = 0;
  virtual void destroy_event(Event event) noexcept = 0;
  // The event must belong to the stream's device. It may be recorded again; earlier waits keep
  // referring to the earlier record.
  virtual void record(Event event, Stream stream) = 0;
  [[nodiscard]] virtual bool done(Event event) = 0;
  // Blocks the host until the event is done.
  virtual void synchronize(Event event) = 0;
  // Later work of `stream` runs after the event, which may belong to another device.
  virtual void wait(Stream stream, Event event) = 0;
  // Device time between two timed events, both done.
  [[nodiscard]] virtual Nanoseconds elapsed(Event from, Event to) = 0;

  // Copies in the order of the stream. The ranges must not overlap; each is on the device or in
  // pinned memory of the host.
  virtual void copy(Stream stream, void* to, const void* from, Bytes size) = 0;
  // Copies between two devices, one of which has `stream`. They need no peer access.
  virtual void copy_between(Stream stream, void* to, int to_device, const void* from,
                            int from_device, Bytes size) = 0;
  // Pinned memory of the host; null if there is not enough.
  [[nodiscard]] virtual void* allocate_pinned(Bytes size) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  // Blocks the host until the stream is done.
  virtual void synchronize(Stream stream) = 0;
  // Whether work of the stream is captured into a graph instead of running.
  [[nodiscard]] virtual bool capturing(Stream stream) = 0;
};

}  // namespace recoup::detail::cuda
