#include "csrc/torch/session/sessions.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/fork_mutex.h"
#include "csrc/torch/backend/backends.h"
#include "csrc/torch/compat/interpreter.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {
namespace {

// The suspended sessions: few, and searched only for pointers that no active session owns.
struct Suspended {
  ForkMutex mutex;
  std::vector<Session*> sessions;

  // Never destroyed: storages may die after static destructors have run.
  static Suspended& instance() {
    static auto* const suspended = new Suspended;
    return *suspended;
  }
};

std::atomic<int> visitors{0};  // number of counted threads
std::atomic<bool> closing{false};
thread_local bool counted = false;  // whether this thread is counted

}  // namespace

void Visit::come_in() {
  for (;;) {
    visitors.fetch_add(1, std::memory_order_seq_cst);
    if (!closing.load(std::memory_order_seq_cst)) [[likely]] {
      counted = true;
      return;
    }
    visitors.fetch_sub(1, std::memory_order_seq_cst);
    const WithoutInterpreter waiting;
    while (closing.load(std::memory_order_relaxed)) {
      std::this_thread::yield();
    }
  }
}

void Visit::go_out() {
  counted = false;
  visitors.fetch_sub(1, std::memory_order_seq_cst);
}

void Visit::forget_others() {
  visitors = counted ? 1 : 0;
  closing = false;
}

// The waiting thread may hold a lock that a visitor waits for (the program's own, in a kernel of
// the program). So visitors are admitted again if the wait takes long.
Closing::Closing() {
  using Clock = std::chrono::steady_clock;
  const WithoutInterpreter waiting;
  Visit::begin_uncounted();
  for (Clock::duration patience = std::chrono::milliseconds(20);; patience += patience / 2) {
    while (closing.exchange(true, std::memory_order_seq_cst)) {
      std::this_thread::yield();
    }
    const Clock::time_point end = Clock::now() + patience;
    do {
      if (visitors.load(std::memory_order_seq_cst) == (counted ? 1 : 0)) {
        return;
      }
      std::this_thread::yield();
    } while (Clock::now() < end);
    closing.store(false, std::memory_order_seq_cst);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Closing::~Closing() {
  Visit::end_uncounted();
  closing.store(false, std::memory_order_seq_cst);
}

std::atomic<Session*> Sessions::cpu_{nullptr};
std::array<std::atomic<Session*>, Sessions::kMaxAccelerators> Sessions::accelerators_{};
std::atomic<int> Sessions::accelerator_count_{0};

std::atomic<Session*>* Sessions::row_of(c10::Device device) {
  if (device.type() == c10::DeviceType::CPU) {
    return &cpu_;
  }
  const bool row =
      accelerator() == device.type() && device.index() >= 0 && device.index() < kMaxAccelerators;
  return row ? &accelerators_[static_cast<std::size_t>(device.index())] : nullptr;
}

bool Sessions::enter(Session& session) {
  Session* expected = nullptr;
  std::atomic<Session*>* const row = row_of(session.device());
  RECOUP_CHECK(row != nullptr);
  if (!row->compare_exchange_strong(expected, &session)) {
    return false;
  }
  if (row != &cpu_) {
    ++accelerator_count_;
  }
  return true;
}

void Sessions::leave(Session& session) {
  std::atomic<Session*>* const row = row_of(session.device());
  if (row->exchange(nullptr, std::memory_order_acq_rel) != nullptr && row != &cpu_) {
    --accelerator_count_;
  }
}

void Sessions::suspend(Session& session) {
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  suspended.sessions.push_back(&session);
}

void Sessions::end_suspended(Session& session) {
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  std::erase(suspended.sessions, &session);
}

std::vector<Session*> Sessions::suspended() {
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  return suspended.sessions;
}

Session* Sessions::numbered(std::uint32_t number) {
  Session* found = nullptr;
  for_each([&](Session& session) { found = session.number() == number ? &session : found; });
  if (found == nullptr) {
    Suspended& suspended = Suspended::instance();
    const std::lock_guard lock(suspended.mutex);
    const auto at = std::find_if(suspended.sessions.begin(), suspended.sessions.end(),
                                 [&](const Session* each) { return each->number() == number; });
    found = at == suspended.sessions.end() ? nullptr : *at;
  }
  return found;
}

Session* Sessions::owner_of(const void* pointer) {
  if (Session* const session = on_cpu(); session != nullptr && session->tensors().owns(pointer)) {
    return session;
  }
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  for (Session* const session : suspended.sessions) {
    if (session->tensors().owns(pointer)) {
      return session;
    }
  }
  return nullptr;
}

}  // namespace recoup::detail
