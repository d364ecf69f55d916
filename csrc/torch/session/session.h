// Session: one engine on one device of this process, with its observers and its memory.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "csrc/base/check.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/ops/in_flight.h"
#include "csrc/torch/overflow/overflow_window.h"
#include "csrc/torch/session/delay.h"
#include "csrc/torch/session/session_observers.h"
#include "csrc/torch/session/tensor_memory.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storages.h"
#include "csrc/torch/storages/tensor_device.h"

namespace recoup::detail {

// A session does not know the table of sessions: BudgetScope decides when it is in force.
class Session {
 public:
  // Throws std::invalid_argument for options that no session supports, std::runtime_error for a
  // device on which there can be no budget.
  Session(const Options& options, c10::Device device, const StorageHooks& hooks);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Unique in the process.
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] c10::Device device() const { return device_.device(); }
  // What the device can do.
  [[nodiscard]] const Capabilities& can() const { return device_.can(); }
  // The owner of the scope: the thread that entered it last.
  [[nodiscard]] std::thread::id thread() const { return thread_; }
  void set_thread(std::thread::id thread) { thread_ = thread; }
  // A test aid for points where threads interact.
  [[nodiscard]] const Delay& delay() const { return delay_; }

  // ---- lock ----
  [[nodiscard]] EngineMutex& mutex() const { return mutex_; }
  // To be called before anything that may replay: waits until no other thread is replaying.
  void wait_for_replays(const EngineLock& lock);
  // Waits until no other thread of the scope runs an op.
  void begin_turn(const EngineLock& lock, bool next = false) {
    turns_.begin(mutex_, lock, [this] { return engine_.replaying(); }, next);
  }
  // Waits for at most `time`. False: this thread has no turn.
  [[nodiscard]] bool begin_turn_within(const EngineLock& lock, std::chrono::nanoseconds time) {
    return turns_.begin_within(mutex_, lock, [this] { return engine_.replaying(); }, time);
  }
  void end_turn(const EngineLock& lock) { turns_.end(lock); }
  // To be called in the child of a fork.
  void forget_other_threads() {
    mutex_.forget_others();
    turns_.forget_others();
  }

  // ---- parts; the argument proves that the caller holds this session's lock ----
  [[nodiscard]] Engine& engine(const EngineLock& lock) { return under(lock, engine_); }
  [[nodiscard]] const Engine& engine(const EngineLock& lock) const { return under(lock, engine_); }
  [[nodiscard]] Storages& storages(const EngineLock& lock) { return under(lock, storages_); }
  [[nodiscard]] Backend& backend(const EngineLock& lock) const {
    return under(lock, device_).backend();
  }
  // Methods of these parts that need no lock are marked as such.
  [[nodiscard]] TensorMemory& memory() { return memory_; }
  [[nodiscard]] TensorDevice& tensors() { return device_; }
  [[nodiscard]] const TensorDevice& tensors() const { return device_; }
  // To arm and disarm, which needs no lock.
  [[nodiscard]] const Storages& storages() const { return storages_; }

  // Ends a pin of a frame or of a collective if its storage is alive. Writes outside of ops are
  // watched again.
  void unpin_and_watch(const PinTicket& pin, const EngineLock& lock);

  // ---- collectives: Note [In collective] ----
  [[nodiscard]] InFlight& in_flight(const EngineLock& lock) { return under(lock, in_flight_); }
  // Call before an op, without the lock: releases the pins of collectives that have finished.
  void land() {
    if (in_flight_.any()) [[unlikely]] {
      finish_ended();
    }
  }
  // Releases, without the lock, the pins of collectives with these works, which have finished.
  void land(std::span<const WorkId> works);
  // Releases the pins of those of these works that have no other owner.
  void land_dropped(std::span<const WorkId> works);
  // Call without the lock, when the session has ended.
  void forget_collectives();
  // Call in the child of a fork.
  void leave_collectives_to_parent() { in_flight_.leave_to_parent(); }

  // ---- requests of the user ----
  // As the functions of Budget of these names.
  [[nodiscard]] Bytes take_recent_peak();
  void reset_peak();
  void count_pages();
  [[nodiscard]] Bytes committed();
  // Restores every evicted value. Throws OutOfBudget; then nothing is lost.
  void materialize_all();
  // The host waits for all work of the scope.
  void wait_for_device();
  // The session ends: evicted bytes are lost. Dying objects go to the graveyard.
  void disown_evicted(const EngineLock& lock);
  // To be called without the lock, which the kernel takes between two runs.
  [[nodiscard]] const Attempts& attempts() const { return engine_.attempts(); }
  // Takes the lock itself.
  [[nodiscard]] OverflowWindow& overflow() { return overflow_; }

  // ---- observers ----
  [[nodiscard]] SessionObservers& observers(const EngineLock& lock) {
    return under(lock, observers_);
  }
  // For the methods that need no lock.
  [[nodiscard]] SessionObservers& observers() { return observers_; }
  // Call before the session is in force: records the program as a trace.
  void record(const std::string& path);
  [[nodiscard]] std::unique_ptr<SessionObservers::Recording> end_recording();
  // A training step ends: informs the trace and the other observers of steps.
  void mark_step(std::string_view name);
  // The number of these steps so far.
  [[nodiscard]] std::int64_t steps(const EngineLock& lock) const { return under(lock, steps_); }

 private:
  template <class Part>
  Part& under(const EngineLock& lock, Part& part) const {
    RECOUP_CHECK(lock.is_of(mutex_), "another session's lock");
    return part;
  }
  void finish_ended();
  void unpin_finished(std::span<const PendingCollective> pending, const EngineLock& lock);

  const std::uint32_t number_;
  std::thread::id thread_;
  const Delay delay_;
  mutable EngineMutex mutex_;
  Turns turns_;
  StorageRecords records_;
  TensorDevice device_;
  Engine engine_;  // its destructor uses the device, and none of the members below
  SessionObservers observers_;
  Storages storages_;
  OverflowWindow overflow_;
  TensorMemory memory_;
  InFlight in_flight_;
  std::int64_t steps_ = 0;
  BlockId bounce_;  // the buffer for moves, if the device needs one
};

// A turn for the duration of a block.
class Turn {
 public:
  struct Begun {};
  // Ends a turn that this thread has.
  Turn(Session& session, Begun, const EngineLock& lock) : session_(session), lock_(lock) {}
  // `next`: before all threads that ask without it.
  Turn(Session& session, const EngineLock& lock, bool next = false)
      : session_(session), lock_(lock) {
    session.begin_turn(lock, next);
  }
  ~Turn() {
    if (!goes_on_) {
      session_.end_turn(lock_);
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  // Keeps the turn after the block, until a call of end_turn.
  void go_on() { goes_on_ = true; }

 private:
  Session& session_;
  const EngineLock& lock_;
  bool goes_on_ = false;
};

}  // namespace recoup::detail
