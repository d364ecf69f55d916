// Note [Time of the stand-in]
// Work runs on one thread and only while the host waits, except for a few tasks at random times. A
// seed determines these times and the next stream to run. This is the laziest device that CUDA
// allows. In synchronous mode all work runs when it is enqueued.
//
// Note [Host only]
// In host-only mode the time of a program is the host time of PyTorch and of what runs above it.
// PyTorch's own CUDA kernels are launched and do nothing. Work is over when it is enqueued, so that
// no call waits and no race is detected. Device memory is never touched, except by copies and fills
// of at most kMostCopied bytes, which the host may read. The contents of tensors are undefined
// otherwise. The clock of a stream advances by a model of each kernel and copy, because recoup
// measures ops by events.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "tests/cuda_stand_in/device/races.h"
#include "tests/cuda_stand_in/device/vector_clock.h"

namespace recoup::stand_in {

struct Event;
struct Graph;

enum class Execution : std::uint8_t { kLazy, kSynchronous, kHostOnly };
constexpr std::size_t kMostCopied = 4096;  // bytes: Note [Host only]

struct Task {
  enum class Kind { kWork, kRecord, kWait };
  Kind kind = Kind::kWork;
  std::function<void()> work{};
  double microseconds = 1;         // of device time
  std::shared_ptr<Event> event{};  // of a record or a wait
  std::uint64_t version = 0;       // of the event
  const char* what = "";
  std::vector<Use> uses{};
  StreamId captured_on = 0;  // the stream on which a task of a graph was captured
};

struct Event {
  int device = 0;
  bool timed = true;
  std::uint64_t recorded = 0;                   // the last version that the host has recorded
  std::set<std::uint64_t> pending;              // versions that the device has not reached
  std::map<std::uint64_t, double> times;        // in microseconds, by version; the last ones only
  std::map<std::uint64_t, VectorClock> clocks;  // what is over at a version; the last ones only
  std::shared_ptr<Graph> capture;  // set if it was recorded while this graph was captured
  std::shared_ptr<Event> within;   // then: the event that a launch of the graph records

  [[nodiscard]] bool is_done(std::uint64_t version) const { return !pending.contains(version); }
};

struct Stream {
  StreamId id = 0;
  int device = 0;
  int priority = 0;
  std::deque<Task> tasks;
  VectorClock clock;  // what is over before its next task
  bool busy = false;
  double now = 0;  // microseconds
  std::shared_ptr<Graph> capture;
};

struct Counters {
  std::int64_t host_waits = 0;
  std::int64_t stream_waits = 0;
  std::int64_t event_records = 0;
  std::int64_t copies = 0;
  std::int64_t launches = 0;
};

// Thread safe. `mutex` guards the public data members.
class Streams {
 public:
  Streams(int devices, std::uint64_t seed, Execution execution);

  [[nodiscard]] Stream* create(int device, int priority);
  void destroy(Stream* stream);  // waits for the stream
  [[nodiscard]] bool knows(const Stream* stream);
  [[nodiscard]] Stream* default_of(int device) {
    return defaults_.at(static_cast<std::size_t>(device));
  }

  // Appends a task to the stream, or to the graph that captures the stream.
  void push(Stream* stream, Task task);
  void record(Stream* stream, const std::shared_ptr<Event>& event);
  void wait(Stream* stream, const std::shared_ptr<Event>& event);  // for its last record

  // These wait on the host.
  void wait_for_stream(Stream* stream);
  void wait_for_event(Event& event);
  void wait_for_device(int device);  // below 0: all devices
  // Queries by the host. The device may run a few tasks before the answer.
  [[nodiscard]] bool is_idle(Stream* stream);
  [[nodiscard]] bool is_done(Event& event);

  // See Races.
  void forget(const void* memory, std::size_t size, const char* what);
  [[nodiscard]] int races();
  [[nodiscard]] Counters counters();

  std::mutex mutex;
  std::set<Stream*> all;
  Counters counted;

 private:
  [[nodiscard]] static bool idle(const Stream& stream) {
    return stream.tasks.empty() && !stream.busy;
  }
  [[nodiscard]] Stream* add(int device, int priority);
  // These require the lock.
  void order(Stream& stream, const Task& task);
  static void pass(Stream& stream, const Task& task);
  [[nodiscard]] std::vector<Stream*> ready() const;
  void know(const Event& event, std::uint64_t version);
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  void let_run(std::unique_lock<std::mutex>& lock);
  void run();
  void step(std::unique_lock<std::mutex>& lock, Stream& stream);

  std::vector<Stream*> defaults_;
  const Execution execution_;
  std::mt19937_64 random_;
  Races races_;
  VectorClock host_;  // the work that the host knows to be over
  StreamId last_id_ = 0;
  std::uint64_t steps_ = 0;
  std::vector<const std::function<bool()>*> waiters_;
  std::condition_variable to_device_;
  std::condition_variable to_host_;
  bool running_ = false;
};

// Whether the calling thread is the one that runs the device's work.
[[nodiscard]] bool on_device();
// The current work of the device, for messages.
[[nodiscard]] const char* work_on_device();

}  // namespace recoup::stand_in
