#include "csrc/disk/copier.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/disk/checksum.h"
#include "csrc/disk/copy_buffer.h"

namespace recoup::detail {
namespace {

std::int64_t in_blocks(std::int64_t bytes) {
  return (bytes + Copier::kBlock - 1) / Copier::kBlock * Copier::kBlock;
}

}  // namespace

struct Copier::Request {
  std::int64_t place = 0;
  char* memory = nullptr;
  std::int64_t size = 0;
  bool writes = false;
  Checksums sums;           // of a read: the expected checksums
  std::uint64_t order = 0;  // position in the queue; 0: a caller waits for it
  std::int64_t begun = 0;   // number of bytes that have been started
  int parts = 0;            // number of parts that the disk or the thread is working on
  bool touched = false;     // the thread is accessing its memory
  bool given_up = false;    // its memory must not be accessed any more
  Result result;
  Queue::handle_type handle{};

  [[nodiscard]] bool all_begun() const {
    return begun >= size || result.kind != Result::Kind::kDone || given_up;
  }
};

bool Copier::Later::operator()(const Request* a, const Request* b) const {
  return a->order > b->order;
}

// The part of a request that one buffer copies.
struct Copier::Part {
  Request* request = nullptr;  // null: the buffer is free
  std::int64_t from = 0;       // offset in the request
  std::int64_t size = 0;
  std::int64_t moved = 0;  // bytes that are done, in whole blocks
};

struct Copier::State {
  State(int its_file, std::unique_ptr<BlockIo> its_io, Patience its_patience)
      : file(its_file), io(std::move(its_io)), patience(its_patience) {
    for (int i = 0; i < kBuffers; ++i) {
      buffers.push_back(make_copy_buffer(kBuffer));
    }
    parts.resize(kBuffers);
  }

  void run();
  [[nodiscard]] int free_buffer() const;
  void begin_part(std::unique_lock<std::mutex>& lock, int index);
  void start_io(int index);
  void end_part(std::unique_lock<std::mutex>& lock, const BlockIo::Done& done);
  void finish_part(std::unique_lock<std::mutex>& lock, int index);
  void fail(Request& request, Result::Kind kind, int error);

  const int file;
  const std::unique_ptr<BlockIo> io;  // used by the thread only
  const Patience patience;
  std::vector<CopyBuffer> buffers;  // used by the thread only

  std::mutex mutex;
  std::condition_variable work;   // wakes the thread
  std::condition_variable moved;  // wakes callers that wait
  // Protected by the mutex.
  std::vector<Part> parts;  // by buffer
  int open_parts = 0;
  std::unordered_map<std::int64_t, std::unique_ptr<Request>> requests;  // by offset in the file
  std::vector<std::unique_ptr<Request>> abandoned;  // timed-out requests with open parts
  Queue queue;                                      // requests that are not completely started
  std::uint64_t next_order = 1;
  std::uint64_t progress = 0;  // number of parts that have ended
  bool stop = false;
  bool timed_out = false;
};

int Copier::State::free_buffer() const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].request == nullptr) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void Copier::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return stop || !queue.empty() || open_parts > 0; });
    if (stop && open_parts == 0) {
      return;
    }
    while (!stop && !queue.empty()) {
      const int buffer = free_buffer();
      if (buffer < 0) {
        break;
      }
      begin_part(lock, buffer);
    }
    if (open_parts > 0) {
      lock.unlock();
      const BlockIo::Done done = io->wait();
      lock.lock();
      end_part(lock, done);
    }
  }
}

void Copier::State::begin_part(std::unique_lock<std::mutex>& lock, int index) {
  Request& request = *queue.top();
  Part& part = parts[static_cast<std::size_t>(index)];
  part = {.request = &request,
          .from = request.begun,
          .size = std::min(kBuffer, request.size - request.begun)};
  request.begun += part.size;
  ++request.parts;
  ++open_parts;
  if (request.all_begun()) {
    queue.pop();
  }
  request.touched = request.writes;
  lock.unlock();
  std::uint64_t sum = 0;
  if (request.writes) {
    void* const buffer = buffers[static_cast<std::size_t>(index)].get();
    std::memcpy(buffer, request.memory + part.from, static_cast<std::size_t>(part.size));
    sum = checksum(buffer, part.size);
  }
  lock.lock();
  request.touched = false;
  if (request.writes) {
    request.sums.push_back(sum);
  }
  moved.notify_all();
  lock.unlock();
  start_io(index);
  lock.lock();
}

void Copier::State::start_io(int index) {
  const Part& part = parts[static_cast<std::size_t>(index)];
  char* const buffer =
      static_cast<char*>(buffers[static_cast<std::size_t>(index)].get()) + part.moved;
  const std::int64_t size = in_blocks(part.size) - part.moved;
  const std::int64_t at = part.request->place + part.from + part.moved;
  if (part.request->writes) {
    io->write(index, file, buffer, size, at);
  } else {
    io->read(index, file, buffer, size, at);
  }
}

void Copier::State::fail(Request& request, Result::Kind kind, int error) {
  if (request.result.kind == Result::Kind::kDone) {
    if (!request.all_begun()) {
      queue.erase(request.handle);
    }
    request.result = {.kind = kind, .error = error, .sums = {}};
  }
}

// A short transfer may end within a block; that block is copied again.
void Copier::State::end_part(std::unique_lock<std::mutex>& lock, const BlockIo::Done& done) {
  ++progress;
  Part& part = parts[static_cast<std::size_t>(done.buffer)];
  const std::int64_t left = in_blocks(part.size) - part.moved;
  if (done.bytes == -EAGAIN || done.bytes == -EINTR) {
    start_io(done.buffer);
    return;
  }
  if (done.bytes < 0) {
    fail(*part.request, Result::Kind::kFailed, static_cast<int>(-done.bytes));
  } else if (done.bytes < left && part.moved + done.bytes < part.size) {
    part.moved += done.bytes / kBlock * kBlock;
    if (done.bytes >= kBlock) {
      start_io(done.buffer);
      return;
    }
    fail(*part.request, part.request->writes ? Result::Kind::kFailed : Result::Kind::kTooShort,
         ENOSPC);
  }
  finish_part(lock, done.buffer);
}

void Copier::State::finish_part(std::unique_lock<std::mutex>& lock, int index) {
  Part& part = parts[static_cast<std::size_t>(index)];
  Request& request = *part.request;
  if (!request.writes && request.result.kind == Result::Kind::kDone && !request.given_up) {
    const void* const buffer = buffers[static_cast<std::size_t>(index)].get();
    request.touched = true;
    lock.unlock();
    std::memcpy(request.memory + part.from, buffer, static_cast<std::size_t>(part.size));
    const bool same = checksum(request.memory + part.from, part.size) ==
                      request.sums[static_cast<std::size_t>(part.from / kBuffer)];
    lock.lock();
    request.touched = false;
    if (!same) {
      fail(request, Result::Kind::kDifferent, 0);
    }
  }
  part = {};
  --request.parts;
  --open_parts;
  moved.notify_all();
}

Copier::Copier(int file, std::unique_ptr<BlockIo> io, Patience patience)
    : state_(std::make_shared<State>(file, std::move(io), patience)),
      thread_([state = state_] { state->run(); }) {}

bool Copier::stuck() const {
  const std::lock_guard lock(state_->mutex);
  return state_->timed_out;
}

Copier::~Copier() {
  if (!state_) {
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_all();
  if (stuck()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

// Destroying the std::thread would terminate the process, because it counts as running in the
// child. It is leaked, with everything that the thread may have held at the fork.
void Copier::abandon() noexcept {
  new std::shared_ptr<State>(std::move(state_));
  new std::thread(std::move(thread_));
}

void Copier::begin_write(std::int64_t to, const void* from, std::int64_t size) {
  auto request = std::make_unique<Request>();
  request->place = to;
  request->memory = static_cast<char*>(const_cast<void*>(from));
  request->size = size;
  request->writes = true;
  begin(std::move(request));
}

void Copier::begin_read(void* to, std::int64_t from, std::int64_t size, Checksums expected) {
  RECOUP_CHECK(static_cast<std::int64_t>(expected.size()) == (size + kBuffer - 1) / kBuffer);
  auto request = std::make_unique<Request>();
  request->place = from;
  request->memory = static_cast<char*>(to);
  request->size = size;
  request->sums = std::move(expected);
  begin(std::move(request));
}

void Copier::begin(std::unique_ptr<Request> request) {
  {
    const std::lock_guard lock(state_->mutex);
    Request& added = *request;
    added.order = state_->next_order++;
    RECOUP_CHECK(state_->requests.emplace(added.place, std::move(request)).second);
    if (added.size > 0) {
      added.handle = state_->queue.push(&added);
    }
  }
  state_->work.notify_one();
}

Copier::Result Copier::end(std::int64_t place) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto found = state.requests.find(place);
  RECOUP_CHECK(found != state.requests.end());
  Request& request = *found->second;
  request.order = 0;
  if (!request.all_begun()) {
    state.queue.update(request.handle);
  }
  const auto ended = [&] { return request.parts == 0 && request.all_begun(); };
  for (std::uint64_t seen = state.progress; !ended(); seen = state.progress) {
    if (!state.moved.wait_for(lock, state.patience,
                              [&] { return ended() || state.progress != seen; })) {
      state.timed_out = true;
      state.fail(request, Result::Kind::kTimedOut, 0);
      request.given_up = true;
      state.moved.wait(lock, [&] { return !request.touched; });
      break;
    }
  }
  Result result = std::move(request.result);
  if (result.kind == Result::Kind::kDone && request.writes) {
    result.sums = std::move(request.sums);
  }
  if (request.parts > 0) {
    state.abandoned.push_back(std::move(found->second));
  }
  state.requests.erase(found);
  return result;
}

Checksums Copier::sums_of(const void* bytes, std::int64_t size) {
  Checksums sums;
  for (std::int64_t from = 0; from < size; from += kBuffer) {
    sums.push_back(
        checksum(static_cast<const char*>(bytes) + from, std::min(kBuffer, size - from)));
  }
  return sums;
}

}  // namespace recoup::detail
