#include "csrc/torch/sessions.h"

#include <mutex>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/torch/gpus.h"
#include "csrc/torch/session.h"

namespace recoup::detail {
namespace {

// Few, and looked at only for pointers that are not those of one at work.
struct Suspended {
  std::mutex mutex;
  std::vector<Session*> sessions;

  // Never destroyed: storages may die after static destructors have run.
  static Suspended& instance() {
    static auto* const suspended = new Suspended;
    return *suspended;
  }
};

}  // namespace

std::atomic<Session*> Sessions::cpu_{nullptr};
std::array<std::atomic<Session*>, Sessions::kMaxGpus> Sessions::gpus_{};
std::atomic<int> Sessions::gpu_count_{0};

std::atomic<Session*>* Sessions::row_of(c10::Device device) {
  if (device.type() == c10::DeviceType::CPU) {
    return &cpu_;
  }
  const bool row = gpu_type() == device.type() && device.index() >= 0 && device.index() < kMaxGpus;
  return row ? &gpus_[static_cast<std::size_t>(device.index())] : nullptr;
}

bool Sessions::enter(Session& session) {
  Session* expected = nullptr;
  std::atomic<Session*>* const row = row_of(session.device());
  RECOUP_CHECK(row != nullptr);
  if (!row->compare_exchange_strong(expected, &session)) {
    return false;
  }
  if (row != &cpu_) {
    ++gpu_count_;
  }
  return true;
}

void Sessions::leave(Session& session) {
  std::atomic<Session*>* const row = row_of(session.device());
  if (row->exchange(nullptr, std::memory_order_acq_rel) != nullptr && row != &cpu_) {
    --gpu_count_;
  }
}

void Sessions::suspend(Session& session) {
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  suspended.sessions.push_back(&session);
}

void Sessions::end_suspended(Session& session, const std::function<void()>& hand_over) {
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  hand_over();
  std::erase(suspended.sessions, &session);
}

Session* Sessions::owner_of(const void* pointer) {
  if (Session* const session = on_cpu(); session != nullptr && session->owns(pointer)) {
    return session;
  }
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  for (Session* const session : suspended.sessions) {
    if (session->owns(pointer)) {
      return session;
    }
  }
  return nullptr;
}

}  // namespace recoup::detail
