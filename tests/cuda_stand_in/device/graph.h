// Graph: the work of captured streams.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cuda_stand_in/device/streams.h"
#include "tests/cuda_stand_in/device/vector_clock.h"

namespace recoup::stand_in {

// A capture begins on one stream, its origin. A stream that waits for an event of the capture joins
// it. Data members and methods are guarded by the mutex of the streams.
struct Graph {
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  // Each appends a task of a captured stream.
  void add(const Stream& stream, Task task);
  // Returns the event that each launch of the graph records.
  [[nodiscard]] std::shared_ptr<Event> record(const Stream& stream);
  void wait(const Stream& stream, const std::shared_ptr<Event>& within);
  // Whether the origin waits for all work of the streams that have joined the capture.
  [[nodiscard]] bool is_joined() const;

  std::uint64_t id = 0;
  std::vector<Task> tasks;  // in the order in which they were enqueued
  std::vector<std::function<void()>> at_end;
  int mode = 0;            // cudaStreamCaptureMode
  std::thread::id thread;  // the thread that began the capture
  Stream* origin = nullptr;
  bool broken = false;
  bool over = false;

 private:
  // What is over after the last task of a stream, and at an event.
  std::map<StreamId, VectorClock> clocks_;
  std::map<const Event*, VectorClock> recorded_;
};

}  // namespace recoup::stand_in
