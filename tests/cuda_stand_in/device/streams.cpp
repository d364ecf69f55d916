#include "tests/cuda_stand_in/device/streams.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/cuda_stand_in/device/graph.h"

namespace recoup::stand_in {
namespace {

constexpr std::size_t kKeptVersions = 64;  // per event
constexpr std::uint64_t kGoesOn = 16;      // one in this many enqueued tasks lets the device run
constexpr std::uint64_t kMostSteps = 4;    // the device then runs fewer steps than this

thread_local bool is_device_thread = false;
const char* volatile current_work = "";

template <class Map>
void keep_last(Map& versions) {
  while (versions.size() > kKeptVersions) {
    versions.erase(versions.begin());
  }
}

}  // namespace

bool on_device() { return is_device_thread; }
const char* work_on_device() { return current_work; }

Streams::Streams(int devices, std::uint64_t seed, Execution execution)
    : execution_(execution), random_(seed) {
  for (int device = 0; device < devices; ++device) {
    defaults_.push_back(add(device, 0));
  }
}

Stream* Streams::add(int device, int priority) {
  auto* const stream = new Stream;
  stream->id = ++last_id_;
  stream->device = device;
  stream->priority = priority;
  all.insert(stream);
  return stream;
}

Stream* Streams::create(int device, int priority) {
  const std::lock_guard lock(mutex);
  return add(device, priority);
}

// The memory of the stream is not freed, so that a late use is detected and not undefined.
void Streams::destroy(Stream* stream) {
  wait_for_stream(stream);
  const std::lock_guard lock(mutex);
  all.erase(stream);
}

bool Streams::knows(const Stream* stream) {
  const std::lock_guard lock(mutex);
  return all.contains(const_cast<Stream*>(stream));
}

void Streams::order(Stream& stream, const Task& task) {
  stream.clock.merge(host_);
  for (const bool write : {false, true}) {
    for (const Use& use : task.uses) {
      if (use.write == write && use.size > 0) {
        races_.use(stream.id, stream.clock, use);
      }
    }
  }
  stream.clock.advance(stream.id);
  if (task.kind == Task::Kind::kRecord) {
    task.event->clocks[task.version] = stream.clock;
    keep_last(task.event->clocks);
  } else if (task.kind == Task::Kind::kWait) {
    stream.clock.merge(task.event->clocks[task.version]);
  }
}

// Ends a task in the stream's time.
void Streams::pass(Stream& stream, const Task& task) {
  stream.now += task.microseconds;
  if (task.kind == Task::Kind::kRecord) {
    task.event->pending.erase(task.version);
    task.event->times[task.version] = stream.now;
    keep_last(task.event->times);
  } else if (task.kind == Task::Kind::kWait) {
    const auto at = task.event->times.find(task.version);
    if (at != task.event->times.end()) {
      stream.now = std::max(stream.now, at->second);
    }
  }
}

void Streams::push(Stream* stream, Task task) {
  std::unique_lock lock(mutex);
  if (stream->capture) {
    stream->capture->add(*stream, std::move(task));
    return;
  }
  if (execution_ == Execution::kHostOnly) {
    pass(*stream, task);
    lock.unlock();
    if (task.work) {
      task.work();
    }
    return;
  }
  order(*stream, task);
  stream->tasks.push_back(std::move(task));
  if (on_device()) {
    return;
  }
  if (execution_ == Execution::kSynchronous) {
    wait(lock, [stream] { return idle(*stream); });
  } else if (random_() % kGoesOn == 0) {
    let_run(lock);
  }
}

void Streams::record(Stream* stream, const std::shared_ptr<Event>& event) {
  std::uint64_t version = 0;
  {
    const std::lock_guard lock(mutex);
    ++counted.event_records;
    version = ++event->recorded;
    event->pending.insert(version);
  }
  Task task;
  task.kind = Task::Kind::kRecord;
  task.microseconds = 0.5;
  task.event = event;
  task.version = version;
  task.what = "the record of an event";
  push(stream, std::move(task));
}

void Streams::wait(Stream* stream, const std::shared_ptr<Event>& event) {
  std::uint64_t version = 0;
  {
    const std::lock_guard lock(mutex);
    version = event->recorded;
  }
  if (version > 0) {
    push(stream, {.kind = Task::Kind::kWait,
                  .microseconds = 0,
                  .event = event,
                  .version = version,
                  .what = "a wait for an event"});
  }
}

std::vector<Stream*> Streams::ready() const {
  std::vector<Stream*> found;
  for (Stream* const stream : all) {
    if (stream->busy || stream->tasks.empty()) {
      continue;
    }
    const Task& task = stream->tasks.front();
    if (task.kind != Task::Kind::kWait || task.event->is_done(task.version)) {
      found.push_back(stream);
    }
  }
  std::sort(found.begin(), found.end(), [](Stream* a, Stream* b) { return a->id < b->id; });
  return found;
}

void Streams::step(std::unique_lock<std::mutex>& lock, Stream& stream) {
  Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  stream.busy = true;
  pass(stream, task);
  if (task.kind == Task::Kind::kWork) {
    lock.unlock();
    current_work = task.what;
    task.work();
    task.work = nullptr;
    lock.lock();
  }
  stream.busy = false;
  ++steps_;
}

void Streams::run() {
  is_device_thread = true;
  std::unique_lock lock(mutex);
  for (;;) {
    const bool wanted = std::any_of(waiters_.begin(), waiters_.end(),
                                    [](const std::function<bool()>* done) { return !(*done)(); });
    const std::vector<Stream*> able = wanted ? ready() : std::vector<Stream*>();
    if (able.empty()) {
      to_device_.wait(lock);
    } else {
      step(lock, *able[random_() % able.size()]);
    }
    to_host_.notify_all();
  }
}

void Streams::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  if (on_device()) {
    std::fprintf(stderr, "*** CUDA stand-in: work on a stream waits for a stream\n");
    std::abort();
  }
  if (done()) {
    return;
  }
  if (!running_) {
    running_ = true;
    std::thread([this] { run(); }).detach();
  }
  waiters_.push_back(&done);
  to_device_.notify_all();
  to_host_.wait(lock, done);
  std::erase(waiters_, &done);
}

void Streams::let_run(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t until = steps_ + random_() % kMostSteps;
  wait(lock, [this, until] {
    const bool busy = std::any_of(all.begin(), all.end(), [](Stream* each) { return each->busy; });
    return steps_ >= until || (!busy && ready().empty());
  });
}

// The host knows that what was recorded is over.
void Streams::know(const Event& event, std::uint64_t version) {
  if (const auto clock = event.clocks.find(version); clock != event.clocks.end()) {
    host_.merge(clock->second);
  }
}

void Streams::wait_for_stream(Stream* stream) {
  std::unique_lock lock(mutex);
  ++counted.host_waits;
  wait(lock, [stream] { return idle(*stream); });
  host_.merge(stream->clock);
}

void Streams::wait_for_event(Event& event) {
  std::unique_lock lock(mutex);
  ++counted.host_waits;
  const std::uint64_t version = event.recorded;
  wait(lock, [&event, version] { return event.is_done(version); });
  know(event, version);
}

void Streams::wait_for_device(int device) {
  std::unique_lock lock(mutex);
  ++counted.host_waits;
  const auto is_meant = [device](const Stream* each) {
    return device < 0 || each->device == device;
  };
  wait(lock, [this, is_meant] {
    return std::all_of(all.begin(), all.end(),
                       [&](Stream* each) { return !is_meant(each) || idle(*each); });
  });
  for (Stream* const stream : all) {
    if (is_meant(stream)) {
      host_.merge(stream->clock);
    }
  }
}

bool Streams::is_idle(Stream* stream) {
  std::unique_lock lock(mutex);
  let_run(lock);
  if (!idle(*stream)) {
    return false;
  }
  host_.merge(stream->clock);
  return true;
}

bool Streams::is_done(Event& event) {
  std::unique_lock lock(mutex);
  let_run(lock);
  if (!event.is_done(event.recorded)) {
    return false;
  }
  know(event, event.recorded);
  return true;
}

void Streams::forget(const void* memory, std::size_t size, const char* what) {
  const std::lock_guard lock(mutex);
  races_.forget(memory, size, host_, what);
}

int Streams::races() {
  const std::lock_guard lock(mutex);
  return races_.found();
}

Counters Streams::counters() {
  const std::lock_guard lock(mutex);
  return counted;
}

}  // namespace recoup::stand_in
