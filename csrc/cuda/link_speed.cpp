#include "csrc/cuda/link_speed.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace recoup::detail::cuda {
namespace {

constexpr Bytes kShort(4096);
constexpr int kCopies = 3;

// Holds the resources of the measurement.
class Bench {
 public:
  Bench(Runtime& runtime, int device, Bytes size)
      : runtime_(runtime),
        device_(device),
        memory_(runtime.allocate(device, size), {this}),
        stream_{runtime, runtime.create_stream(device)},
        from_(runtime.create_event(device, true).handle, {this}),
        to_(runtime.create_event(device, true).handle, {this}) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Null if the device has not enough memory.
  [[nodiscard]] void* memory() const { return memory_.get(); }

  // Measures a few times and takes the fastest, because other activity slows measurements down.
  double time(void* to, const void* from, Bytes size) {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kCopies; ++i) {
      runtime_.record({from_.get()}, stream_.stream);
      runtime_.copy(stream_.stream, to, from, size);
      runtime_.record({to_.get()}, stream_.stream);
      runtime_.synchronize(Event{to_.get()});
      const Nanoseconds taken = runtime_.elapsed({from_.get()}, {to_.get()});
      best = std::min(best, static_cast<double>(taken.count()));
    }
    return best;
  }

 private:
  struct OwnStream {
    Runtime& runtime;
    Stream stream;
    ~OwnStream() { runtime.destroy_stream(stream); }
  };
  struct ReleaseMemory {
    Bench* bench;
    void operator()(void* memory) const { bench->runtime_.release(bench->device_, memory); }
  };
  struct DestroyEvent {
    Bench* bench;
    void operator()(void* event) const { bench->runtime_.destroy_event({event}); }
  };

  Runtime& runtime_;
  int device_;
  std::unique_ptr<void, ReleaseMemory> memory_;
  OwnStream stream_;
  std::unique_ptr<void, DestroyEvent> from_;
  std::unique_ptr<void, DestroyEvent> to_;
};

}  // namespace

std::optional<LinkSpeed> measure_link(Runtime& runtime, int device, void* pinned, Bytes size) {
  Bench bench(runtime, device, size);
  if (bench.memory() == nullptr) {
    return std::nullopt;
  }
  const Bytes few = std::min(kShort, size);
  const auto bytes = static_cast<double>(size.count());
  constexpr double kLeast = 1e-4;  // no link is that fast; a price must not be 0
  return LinkSpeed{
      .out_ns_per_byte = std::max(bench.time(pinned, bench.memory(), size) / bytes, kLeast),
      .in_ns_per_byte = std::max(bench.time(bench.memory(), pinned, size) / bytes, kLeast),
      .copy_ns = std::min(bench.time(pinned, bench.memory(), few),
                          bench.time(bench.memory(), pinned, few))};
}

}  // namespace recoup::detail::cuda
