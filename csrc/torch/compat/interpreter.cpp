#include "csrc/torch/compat/interpreter.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "recoup/bindings.h"

namespace recoup {
namespace detail {
namespace {

// Null without an interpreter.
std::atomic<const InterpreterLock*> interpreter_lock{nullptr};

}  // namespace

WithoutInterpreter::WithoutInterpreter() {
  const InterpreterLock* const lock = interpreter_lock.load(std::memory_order_acquire);
  state_ = lock == nullptr ? nullptr : lock->release();
}

WithoutInterpreter::~WithoutInterpreter() {
  if (state_ != nullptr) {
    interpreter_lock.load(std::memory_order_acquire)->take_back(state_);
  }
}

WithInterpreter::WithInterpreter(bool wanted) {
  const InterpreterLock* const lock = interpreter_lock.load(std::memory_order_acquire);
  held_ = wanted && lock != nullptr && lock->running();
  if (held_) {
    state_ = lock->hold();
  }
}

WithInterpreter::~WithInterpreter() {
  if (held_) {
    interpreter_lock.load(std::memory_order_acquire)->let_go(state_);
  }
}

void tell_program_of_outside_access() {
  const InterpreterLock* const lock = interpreter_lock.load(std::memory_order_acquire);
  if (lock == nullptr || !lock->running()) {
    return;
  }
  auto done = std::make_shared<std::promise<void>>();
  const std::future<void> ended = done->get_future();
  try {
    std::thread([lock, done, thread = gettid()] {
      lock->outside_access(thread);
      done->set_value();
    }).detach();
  } catch (const std::system_error&) {  // no thread is left; the error of the access matters more
    return;
  }
  const WithoutInterpreter waiting;
  (void)ended.wait_for(std::chrono::seconds(1));
}

std::int64_t references_to(const void* object) {
  const InterpreterLock* const lock = interpreter_lock.load(std::memory_order_acquire);
  return lock == nullptr ? 0 : lock->references(object);
}

}  // namespace detail

void set_interpreter_lock(const InterpreterLock& lock) {
  detail::interpreter_lock.store(&lock, std::memory_order_release);
}

}  // namespace recoup
