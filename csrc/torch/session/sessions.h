// The table of sessions: at most one active session on each device of the process.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace recoup::detail {

class Session;

// Note [Visits]
// Tensors die on any thread, at any time, even while another thread leaves the scope. So a thread
// that looks up a session holds a Visit from before the lookup until after the last use. A session
// ends only in a Closing, which waits until there is no visitor and admits none. The thread that
// entered a scope also leaves it. It visits for as long as the scope is open and is not counted, so
// its ops need no atomic operation.
class Visit {
 public:
  Visit() { begin(); }
  ~Visit() { end(); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // Begins a visit without an object, for the thread that enters a scope (not counted), and around
  // fork.
  static void begin() {
    if (depth()++ == 0) [[unlikely]] {
      come_in();
    }
  }
  static void end() {
    if (--depth() == 0) [[unlikely]] {
      go_out();
    }
  }
  static void begin_uncounted() { ++depth(); }
  static void end_uncounted() { --depth(); }
  // The child of a fork has only the thread that called it.
  static void forget_others();

 private:
  friend class Closing;
  static int& depth() {
    thread_local int depth = 0;
    return depth;
  }
  static void come_in();
  static void go_out();
};

// No other thread visits during its lifetime. It must not run foreign code: no object may be
// destroyed meanwhile that could be a tensor.
class Closing {
 public:
  Closing();
  ~Closing();
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
};

// Read without a lock, in a Visit, by every op; changed while a session enters or leaves.
class Sessions {
 public:
  static constexpr int kMaxAccelerators = 64;

  [[nodiscard]] static Session* on_cpu() { return cpu_.load(std::memory_order_seq_cst); }
  [[nodiscard]] static bool any_on_accelerators() {
    return accelerator_count_.load(std::memory_order_acquire) > 0;
  }
  [[nodiscard]] static bool any() { return on_cpu() != nullptr || any_on_accelerators(); }
  // Null for a device without an active session.
  [[nodiscard]] static Session* on(c10::Device device) {
    const std::atomic<Session*>* const row = row_of(device);
    return row == nullptr ? nullptr : row->load(std::memory_order_seq_cst);
  }
  // Calls function(session) for each active session.
  template <class Function>
  static void for_each(Function&& function) {
    if (Session* const session = on_cpu()) {
      function(*session);
    }
    if (any_on_accelerators()) {
      for (const std::atomic<Session*>& row : accelerators_) {
        if (Session* const session = row.load(std::memory_order_acquire)) {
          function(*session);
        }
      }
    }
  }

  // False if there is one on its device.
  [[nodiscard]] static bool enter(Session& session);
  static void leave(Session& session);

  // A session that could not be left yet keeps its memory and receives no ops.
  static void suspend(Session& session);
  static void end_suspended(Session& session);
  [[nodiscard]] static std::vector<Session*> suspended();
  // The session of the CPU, active or suspended, whose arena holds `pointer`.
  [[nodiscard]] static Session* owner_of(const void* pointer);
  // The session with this number, active or suspended.
  [[nodiscard]] static Session* numbered(std::uint32_t number);

 private:
  [[nodiscard]] static std::atomic<Session*>* row_of(c10::Device device);

  static std::atomic<Session*> cpu_;
  static std::array<std::atomic<Session*>, kMaxAccelerators> accelerators_;
  static std::atomic<int> accelerator_count_;
};

}  // namespace recoup::detail
