// ClockCuda: a device that executes nothing, and keeps for each stream the accesses that precede
// its next work in every execution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/cuda/error.h"
#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Number of accesses of each stream.
using Clock = std::map<Stream, std::int64_t>;

class ClockCuda final : public Runtime {
 public:
  // Whether an event is over whose work the host has not observed yet.
  std::function<bool()> is_over = [] { return false; };
  // Called for each copy that a stream is given.
  std::function<void(Stream)> on_copy = [](Stream) {};

  Stream new_stream() { return {.handle = reinterpret_cast<void*>(++last_handle_), .device = 0}; }
  // Gives the stream an access. Returns its number on the stream.
  std::int64_t access(Stream stream) { return ++before(stream)[stream]; }
  // Whether work that the stream is given next runs after that access of another stream.
  [[nodiscard]] bool follows(Stream stream, Stream other, std::int64_t number) {
    return before(stream)[other] >= number;
  }
  [[nodiscard]] std::int64_t waits() const { return waits_; }
  [[nodiscard]] std::int64_t records() const { return records_; }
  // The `countdown`-th call from now of record() or copy() throws; 0: none.
  void fail_after(int countdown) { countdown_ = countdown; }
  // The `countdown`-th call from now of wait() does nothing; 0: none.
  void forget_after(std::int64_t countdown) { forget_ = countdown; }

  Event create_event(int /*device*/, bool /*timed*/) override {
    events_.push_back(std::make_unique<Clock>());
    return {events_.back().get()};
  }
  void destroy_event(Event /*event*/) noexcept override {}
  void record(Event event, Stream stream) override {
    fail_if_due();
    ++records_;
    clock_of(event) = before(stream);
  }
  bool done(Event event) override {
    const Clock& clock = clock_of(event);
    const bool observed = std::all_of(clock.begin(), clock.end(), [this](const auto& each) {
      return host_[each.first] >= each.second;
    });
    if (!observed && !is_over()) {
      return false;
    }
    merge(host_, clock);
    return true;
  }
  void synchronize(Event event) override { merge(host_, clock_of(event)); }
  void synchronize(Stream stream) override { merge(host_, before(stream)); }
  void wait(Stream stream, Event event) override {
    ++waits_;
    if (forget_ == 0 || --forget_ != 0) {
      merge(before(stream), clock_of(event));
    }
  }
  void copy(Stream stream, void* /*to*/, const void* /*from*/, Bytes /*size*/) override {
    fail_if_due();
    on_copy(stream);
  }
  Stream create_stream(int /*device*/) override { return new_stream(); }
  void destroy_stream(Stream /*stream*/) noexcept override {}
  bool capturing(Stream /*stream*/) override { return false; }

  // Not needed.
  int device_count() override { return 1; }
  DeviceMemory memory(int /*device*/) override { return {}; }
  void* allocate(int /*device*/, Bytes /*size*/) override { return nullptr; }
  void release(int /*device*/, void* /*memory*/) noexcept override {}
  Bytes granularity(int /*device*/) override { return Bytes(1); }
  void* reserve(int /*device*/, Bytes /*size*/) override { return nullptr; }
  void unreserve(int /*device*/, void* /*addresses*/, Bytes /*size*/) noexcept override {}
  bool map(int /*device*/, void* /*at*/, Bytes /*size*/) override { return false; }
  void unmap(int /*device*/, void* /*at*/, Bytes /*size*/) noexcept override {}
  Nanoseconds elapsed(Event /*from*/, Event /*to*/) override { return Nanoseconds(0); }
  void copy_between(Stream /*stream*/, void* /*to*/, int /*to_device*/, const void* /*from*/,
                    int /*from_device*/, Bytes /*size*/) override {}
  void* allocate_pinned(Bytes /*size*/) override { return nullptr; }
  void release_pinned(void* /*memory*/) noexcept override {}

 private:
  static Clock& clock_of(Event event) { return *static_cast<Clock*>(event.handle); }
  static void merge(Clock& into, const Clock& from) {
    for (const auto& [stream, number] : from) {
      into[stream] = std::max(into[stream], number);
    }
  }
  // What precedes the next work of the stream. Work runs after all that the host has observed.
  Clock& before(Stream stream) {
    Clock& clock = clocks_[stream];
    merge(clock, host_);
    return clock;
  }
  void fail_if_due() {
    if (countdown_ > 0 && --countdown_ == 0) {
      throw CudaError("the driver fails");
    }
  }

  std::uintptr_t last_handle_ = 0;
  std::map<Stream, Clock> clocks_;
  Clock host_;  // what the host has observed
  std::vector<std::unique_ptr<Clock>> events_;
  std::int64_t waits_ = 0;
  std::int64_t records_ = 0;
  int countdown_ = 0;
  std::int64_t forget_ = 0;
};

}  // namespace recoup::detail::cuda
