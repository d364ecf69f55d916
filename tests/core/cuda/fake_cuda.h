// FakeCuda: a device without a GPU. Its memory is the host's. Its streams run late, in an order
// that is chosen by a seed among all orders that the events allow.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/cuda/error.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

class FakeCuda final : public Runtime {
 public:
  struct Options {
    std::uint64_t seed = 0;
    int devices = 1;
    Bytes memory{1 << 30};         // per device
    Bytes granularity{1 << 16};    // a multiple of the host's page size
    std::int64_t forget_each = 0;  // every N-th wait is ignored, to test the tests; 0: none
    Bytes pinned{1 << 30};         // limit of pinned host memory
  };

  explicit FakeCuda(const Options& options) : options_(options), random_(options.seed) {
    for (int device = 0; device < options.devices; ++device) {
      streams_[{.handle = nullptr, .device = device}];
    }
  }
  ~FakeCuda() override { synchronize_all(); }

  Stream new_stream(int device = 0) {
    const std::lock_guard lock(mutex_);
    // Ascending: streams take turns in the order of their handles, so that runs are reproducible.
    const Stream stream{.handle = reinterpret_cast<void*>(++last_handle_), .device = device};
    streams_[stream];
    return stream;
  }
  // Launches a kernel.
  void launch(Stream stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    push(stream, {.kind = Task::kWork, .work = std::move(work), .event = nullptr, .version = 0});
  }
  // Waits for the last record of the event, and for nothing that was recorded later. Not affected
  // by forget_each.
  void wait_surely(Stream stream, Event event) {
    const std::lock_guard lock(mutex_);
    const EventState& state = events_.at(event.handle);
    RECOUP_CHECK(!state.destroyed);
    push(stream,
         {.kind = Task::kWait, .work = {}, .event = event.handle, .version = state.recorded});
  }
  // Advances time: runs up to `tasks` tasks.
  void run(int tasks) {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < tasks && run_one(); ++i) {
    }
  }
  void synchronize_all() {
    const std::lock_guard lock(mutex_);
    while (run_one()) {
    }
    for (const auto& [name, stream] : streams_) {
      RECOUP_CHECK(stream.tasks.empty(), "a stream waits for ever");
    }
  }
  // The next `count` calls of record() throw.
  void fail_records(int count) { fail_records_ = count; }
  // The call of copy() after the next `count` calls throws.
  void fail_copy_after(int count) { copies_to_failure_ = count; }
  // The call of map() after the next `count` calls throws.
  void fail_map_after(int count) { maps_to_failure_ = count; }
  // Advances the device's time; for kernels.
  void pass(Nanoseconds time) { now_ += time; }
  void begin_capture(Stream stream) {
    const std::lock_guard lock(mutex_);
    captured_.insert(stream);
  }
  void end_capture(Stream stream) {
    const std::lock_guard lock(mutex_);
    captured_.erase(stream);
  }
  // The stream is captured, as if by another thread, during the next record() on it.
  void begin_capture_at_record(Stream stream) { capture_at_record_ = stream; }

  [[nodiscard]] Bytes allocated(int device) const {
    return used_.contains(device) ? used_.at(device) : 0_B;
  }
  // The device whose memory or reserved addresses contain `memory`; nullopt if there is none.
  [[nodiscard]] std::optional<int> device_of(const void* memory) const {
    const std::lock_guard lock(mutex_);
    const auto lies_in = [&](const void* base, Bytes size) {
      return memory >= base && memory < static_cast<const char*>(base) + size.count();
    };
    for (const auto& [base, block] : blocks_) {
      if (lies_in(base, block.size)) {
        return block.device;
      }
    }
    for (const auto& [base, reserved] : reservations_) {
      if (lies_in(base, reserved.size)) {
        return reserved.device;
      }
    }
    return std::nullopt;
  }
  // Allocated pinned bytes of the host.
  [[nodiscard]] Bytes pinned() const {
    const std::lock_guard lock(mutex_);
    return pinned_used_;
  }
  void set_pinned_limit(Bytes most) { options_.pinned = most; }
  // The number of current reservations.
  [[nodiscard]] std::size_t reservations() const { return reservations_.size(); }
  // The number of current maps.
  [[nodiscard]] std::size_t maps() const {
    std::size_t count = 0;
    for (const auto& [base, reserved] : reservations_) {
      count += reserved.maps.size();
    }
    return count;
  }
  // The number of tasks that a stream has not run yet.
  [[nodiscard]] int pending(Stream stream) const {
    return static_cast<int>(streams_.at(stream).tasks.size());
  }
  [[nodiscard]] std::int64_t waits() const { return waits_; }
  // The number of events that are not destroyed.
  [[nodiscard]] std::int64_t events() const {
    return std::count_if(events_.begin(), events_.end(),
                         [](const auto& event) { return !event.second.destroyed; });
  }
  [[nodiscard]] std::int64_t synchronizations() const { return synchronizations_; }
  [[nodiscard]] std::int64_t destroyed_streams() const { return destroyed_streams_; }
  // The number of calls of copy_between().
  [[nodiscard]] std::int64_t copies_between() const { return copies_between_; }
  // The number of calls of release() during a capture, which could fail the capture.
  [[nodiscard]] std::int64_t releases_while_captured() const { return releases_while_captured_; }

  // Implementation of Runtime.
  int device_count() override { return options_.devices; }
  DeviceMemory memory(int device) override {
    return {.free = options_.memory - used_[device], .total = options_.memory};
  }
  void* allocate(int device, Bytes size) override {
    const std::lock_guard lock(mutex_);
    if (used_[device] + size > options_.memory) {
      return nullptr;
    }
    used_[device] += size;
    void* const memory = ::operator new(static_cast<std::size_t>(size.count()), kAlignment);
    blocks_[memory] = {.device = device, .size = size};
    return memory;
  }
  void release(int device, void* memory) noexcept override {
    synchronize_all();
    const std::lock_guard lock(mutex_);
    releases_while_captured_ += captured_.empty() ? 0 : 1;
    used_[device] -= blocks_.at(memory).size;
    blocks_.erase(memory);
    ::operator delete(memory, kAlignment);
  }
  Bytes granularity(int /*device*/) override { return options_.granularity; }
  void* reserve(int device, Bytes size) override {
    const std::lock_guard lock(mutex_);
    RECOUP_CHECK(size > 0_B && whole(size.count()), "addresses by granules");
    void* const base = host_pages(nullptr, size, PROT_NONE, 0);
    reservations_[static_cast<char*>(base)] = {.device = device, .size = size, .maps = {}};
    return base;
  }
  void unreserve(int device, void* addresses, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = reservations_.find(static_cast<char*>(addresses));
    RECOUP_CHECK(it != reservations_.end() && it->second.device == device &&
                     it->second.size == size && it->second.maps.empty(),
                 "unreserves what is not reserved, or mapped");
    munmap(addresses, static_cast<std::size_t>(size.count()));
    reservations_.erase(it);
  }
  bool map(int device, void* at, Bytes size) override {
    const std::lock_guard lock(mutex_);
    auto& maps = reservation_of(device, at, size).maps;
    auto* const begin = static_cast<char*>(at);
    const auto next = maps.lower_bound(begin);
    RECOUP_CHECK(next == maps.end() || begin + size.count() <= next->first, "maps over a map");
    RECOUP_CHECK(
        next == maps.begin() || std::prev(next)->first + std::prev(next)->second.count() <= begin,
        "maps over a map");
    if (maps_to_failure_ >= 0 && --maps_to_failure_ < 0) {
      throw CudaError("the driver fails");
    }
    if (used_[device] + size > options_.memory) {
      return false;
    }
    host_pages(at, size, PROT_READ | PROT_WRITE, MAP_FIXED);
    used_[device] += size;
    maps[begin] = size;
    return true;
  }
  void unmap(int device, void* at, Bytes size) noexcept override {
    synchronize_all();
    const std::lock_guard lock(mutex_);
    auto& maps = reservation_of(device, at, size).maps;
    const auto it = maps.find(static_cast<char*>(at));
    RECOUP_CHECK(it != maps.end() && it->second == size, "unmaps what was not one map");
    host_pages(at, size, PROT_NONE, MAP_FIXED);
    used_[device] -= size;
    maps.erase(it);
  }
  Stream create_stream(int device) override { return new_stream(device); }
  // Tasks that were given to the stream still run.
  void destroy_stream(Stream stream) noexcept override {
    const std::lock_guard lock(mutex_);
    ++destroyed_streams_;
    (void)stream;
  }
  Event create_event(int device, bool /*timed*/) override {
    const std::lock_guard lock(mutex_);
    handles_.push_back(std::make_unique<char>());
    events_[handles_.back().get()].device = device;
    return {handles_.back().get()};
  }
  void destroy_event(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    events_.at(event.handle).destroyed = true;
  }
  void record(Event event, Stream stream) override {
    const std::lock_guard lock(mutex_);
    if (fail_records_ > 0) {
      --fail_records_;
      throw CudaError("the driver fails");
    }
    RECOUP_CHECK(!captured_.contains(stream), "an event goes into a graph");
    EventState& state = events_.at(event.handle);
    RECOUP_CHECK(!state.destroyed && state.device == stream.device);
    push(stream,
         {.kind = Task::kRecord, .work = {}, .event = event.handle, .version = ++state.recorded});
    if (capture_at_record_ == stream) {
      captured_.insert(stream);
      capture_at_record_.reset();
    }
  }
  bool done(Event event) override {
    const std::lock_guard lock(mutex_);
    const EventState& state = events_.at(event.handle);
    return state.recorded == 0 || state.reached.contains(state.recorded);
  }
  void wait(Stream stream, Event event) override {
    {
      const std::lock_guard lock(mutex_);
      ++waits_;
      if (options_.forget_each > 0 && waits_ % options_.forget_each == 0) {
        return;
      }
    }
    wait_surely(stream, event);
  }
  Nanoseconds elapsed(Event from, Event to) override {
    const std::lock_guard lock(mutex_);
    return events_.at(to.handle).time - events_.at(from.handle).time;
  }
  void copy(Stream stream, void* to, const void* from, Bytes size) override {
    const auto* const begin = static_cast<const char*>(from);
    auto* const target = static_cast<char*>(to);
    RECOUP_CHECK(begin + size.count() <= target || target + size.count() <= begin,
                 "a copy over itself");
    if (copies_to_failure_ >= 0 && --copies_to_failure_ < 0) {
      throw CudaError("the driver fails");
    }
    launch(stream, [=] { std::memcpy(to, from, static_cast<std::size_t>(size.count())); });
  }
  void copy_between(Stream stream, void* to, int /*to_device*/, const void* from,
                    int /*from_device*/, Bytes size) override {
    ++copies_between_;
    copy(stream, to, from, size);
  }
  void* allocate_pinned(Bytes size) override {
    const std::lock_guard lock(mutex_);
    if (pinned_used_ + size > options_.pinned) {
      return nullptr;
    }
    pinned_used_ += size;
    void* const memory = ::operator new(static_cast<std::size_t>(size.count()), kAlignment);
    pinned_[memory] = size;
    return memory;
  }
  void release_pinned(void* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    pinned_used_ -= pinned_.at(memory);
    pinned_.erase(memory);
    ::operator delete(memory, kAlignment);
  }
  void synchronize(Stream stream) override {
    const std::lock_guard lock(mutex_);
    ++synchronizations_;
    while (!streams_.at(stream).tasks.empty()) {
      RECOUP_CHECK(run_one(), "a stream waits for ever");
    }
  }
  void synchronize(Event event) override {
    const std::lock_guard lock(mutex_);
    ++synchronizations_;
    const EventState& state = events_.at(event.handle);
    while (!state.reached.contains(state.recorded)) {
      RECOUP_CHECK(run_one(), "the host waits for ever");
    }
  }
  bool capturing(Stream stream) override {
    const std::lock_guard lock(mutex_);
    return captured_.contains(stream);
  }

 private:
  static constexpr std::align_val_t kAlignment{512};
  struct Task {
    enum Kind : std::uint8_t { kWork, kRecord, kWait } kind = kWork;
    std::function<void()> work;
    void* event = nullptr;
    std::int64_t version = 0;
  };
  struct StreamState {
    std::deque<Task> tasks;
  };
  struct EventState {
    std::int64_t recorded = 0;
    std::set<std::int64_t> reached;  // numbers of the records that have been reached
    Nanoseconds time{0};
    bool destroyed = false;
    int device = 0;
  };

  struct Block {
    int device = 0;
    Bytes size;
  };
  struct Reserved {
    int device = 0;
    Bytes size;
    std::map<char*, Bytes> maps;
  };

  [[nodiscard]] bool whole(std::int64_t count) const {
    return count % options_.granularity.count() == 0;
  }
  // Returns the reservation that contains the range, which must consist of whole granules.
  Reserved& reservation_of(int device, const void* at, Bytes size) {
    const auto* const begin = static_cast<const char*>(at);
    for (auto& [base, reserved] : reservations_) {
      if (base <= begin && begin < base + reserved.size.count()) {
        RECOUP_CHECK(reserved.device == device && size > 0_B &&
                         size.count() <= base + reserved.size.count() - begin &&
                         whole(begin - base) && whole(size.count()),
                     "not whole granules of one reservation");
        return reserved;
      }
    }
    check_failed("reserved", __FILE__, __LINE__, "these addresses are not");
  }
  // Maps new pages, which do not keep the bytes of previous ones.
  static void* host_pages(void* at, Bytes size, int protection, int flags) {
    void* const pages = mmap(at, static_cast<std::size_t>(size.count()), protection,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    RECOUP_CHECK(pages != MAP_FAILED, "the host has no such pages");
    return pages;
  }

  void push(Stream stream, Task task) { streams_.at(stream).tasks.push_back(std::move(task)); }

  // For a while one random stream is preferred over the others, so that races between long and
  // short work show up.
  bool run_one() {
    std::vector<StreamState*> ready;
    for (auto& [name, stream] : streams_) {
      if (!stream.tasks.empty() && runnable(stream.tasks.front())) {
        ready.push_back(&stream);
      }
    }
    if (ready.empty()) {
      return false;
    }
    if (--until_favorite_ < 0) {
      until_favorite_ = static_cast<int>(random_() % 40);
      favorite_ = random_();
    }
    StreamState& stream = *ready[(random_() % 8 != 0 ? favorite_ : random_()) % ready.size()];
    const Task task = std::move(stream.tasks.front());
    stream.tasks.pop_front();
    now_ += Nanoseconds(1000);
    if (task.kind == Task::kWork) {
      task.work();
    } else if (task.kind == Task::kRecord) {
      EventState& event = events_.at(task.event);
      event.reached.insert(task.version);
      event.time = now_;
    }
    return true;
  }
  bool runnable(const Task& task) {
    return task.kind != Task::kWait || task.version == 0 ||
           events_.at(task.event).reached.contains(task.version);
  }

  Options options_;
  std::mt19937_64 random_;
  mutable std::mutex mutex_;
  std::uintptr_t last_handle_ = 0;
  std::map<Stream, StreamState> streams_;
  std::map<void*, EventState> events_;
  std::map<const void*, Block> blocks_;
  std::map<void*, Bytes> pinned_;
  Bytes pinned_used_{0};
  std::map<char*, Reserved> reservations_;
  std::map<int, Bytes> used_;
  std::set<Stream> captured_;
  std::optional<Stream> capture_at_record_;
  std::vector<std::unique_ptr<char>> handles_;
  std::int64_t waits_ = 0;
  std::int64_t synchronizations_ = 0;
  std::int64_t destroyed_streams_ = 0;
  std::int64_t copies_between_ = 0;
  std::int64_t releases_while_captured_ = 0;
  int fail_records_ = 0;
  int maps_to_failure_ = -1;
  int copies_to_failure_ = -1;
  int until_favorite_ = 0;
  std::uint64_t favorite_ = 0;
  Nanoseconds now_{0};
};

}  // namespace recoup::detail::cuda
