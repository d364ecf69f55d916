// The table of engines: at most one session at work on each device of the process.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <functional>

namespace recoup::detail {

class Session;

// Read without a lock, on the way of every op; changed while a session enters or stops.
class Sessions {
 public:
  static constexpr int kMaxGpus = 64;

  [[nodiscard]] static Session* on_cpu() { return cpu_.load(std::memory_order_acquire); }
  [[nodiscard]] static bool any_on_gpus() { return gpu_count_.load(std::memory_order_acquire) > 0; }
  [[nodiscard]] static bool any() { return on_cpu() != nullptr || any_on_gpus(); }
  // Null for a device on which none is at work.
  [[nodiscard]] static Session* on(c10::Device device) {
    const std::atomic<Session*>* const row = row_of(device);
    return row == nullptr ? nullptr : row->load(std::memory_order_acquire);
  }
  // Calls function(session) for each that is at work.
  template <class Function>
  static void for_each(Function&& function) {
    if (Session* const session = on_cpu()) {
      function(*session);
    }
    if (any_on_gpus()) {
      for (const std::atomic<Session*>& row : gpus_) {
        if (Session* const session = row.load(std::memory_order_acquire)) {
          function(*session);
        }
      }
    }
  }

  // False when there is one on its device.
  [[nodiscard]] static bool enter(Session& session);
  static void leave(Session& session);

  // One that could not be left yet keeps its memory and sees no ops.
  static void suspend(Session& session);
  // It goes. hand_over() is called while nobody can look for its memory.
  static void end_suspended(Session& session, const std::function<void()>& hand_over);
  // The session of the CPU, at work or suspended, whose arena holds `pointer`.
  [[nodiscard]] static Session* owner_of(const void* pointer);

 private:
  [[nodiscard]] static std::atomic<Session*>* row_of(c10::Device device);

  static std::atomic<Session*> cpu_;
  static std::array<std::atomic<Session*>, kMaxGpus> gpus_;
  static std::atomic<int> gpu_count_;
};

}  // namespace recoup::detail
