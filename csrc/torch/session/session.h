// Session: one engine at work on one device of this process, and what stands around it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/engine/base/decisions.h"
#include "csrc/engine/base/observer_pair.h"
#include "csrc/engine/program/engine.h"
#include "csrc/foresight/foresight.h"
#include "csrc/foresight/next_use_predictor.h"
#include "csrc/schedule/runner.h"
#include "csrc/torch/ops/in_flight.h"
#include "csrc/torch/session/attributor.h"
#include "csrc/torch/session/delay.h"
#include "csrc/torch/session/tensor_memory.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storages.h"
#include "csrc/torch/storages/tensor_device.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/writer.h"

namespace recoup::detail {

// It knows nothing of the table of sessions: when it is in force is BudgetScope's to say.
class Session {
 public:
  // Throws std::invalid_argument for options that no session can have, std::runtime_error for a
  // device on which there can be none.
  Session(const Options& options, c10::Device device, const StorageHooks& hooks);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Tells it from all others of the process.
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] c10::Device device() const { return device_.device(); }
  [[nodiscard]] bool on_gpu() const { return device_.gpu() != nullptr; }
  // Whose scope it is: the one that entered it last.
  [[nodiscard]] std::thread::id thread() const { return thread_; }
  void set_thread(std::thread::id thread) { thread_ = thread; }
  // A test aid, for where threads meet.
  [[nodiscard]] const Delay& delay() const { return delay_; }

  // ---- its lock ----
  [[nodiscard]] EngineMutex& mutex() const { return mutex_; }
  // To be called before anything that may replay: waits until no other thread is replaying.
  void wait_for_replays(const EngineLock& lock);
  // Waits until no other thread of the scope is in an op.
  void begin_turn(const EngineLock& lock) {
    turns_.begin(mutex_, lock, [this] { return engine_.replaying(); });
  }
  void end_turn(const EngineLock& lock) { turns_.end(lock); }
  void forget_turns_of_others() { turns_.forget_others(); }

  // ---- its parts; who has a lock shows it, and it is looked at ----
  [[nodiscard]] Engine& engine(const EngineLock& lock) { return under(lock, engine_); }
  [[nodiscard]] const Engine& engine(const EngineLock& lock) const { return under(lock, engine_); }
  [[nodiscard]] Storages& storages(const EngineLock& lock) { return under(lock, storages_); }
  // Null on the CPU.
  [[nodiscard]] Gpu* gpu(const EngineLock& lock) const { return under(lock, device_).gpu(); }
  // What is called without the lock says so.
  [[nodiscard]] TensorMemory& memory() { return memory_; }
  [[nodiscard]] TensorDevice& tensors() { return device_; }
  [[nodiscard]] const TensorDevice& tensors() const { return device_; }
  // They need no lock to arm and disarm.
  [[nodiscard]] const Storages& storages() const { return storages_; }

  // Ends a pin of a frame or a collective, if its storage is alive; writes from outside of ops are
  // watched again.
  void unpin_and_watch(const PinTicket& pin, const EngineLock& lock);

  // ---- collectives: Note [In collective] ----
  [[nodiscard]] InFlight& in_flight(const EngineLock& lock) { return under(lock, in_flight_); }
  // Before an op, without the lock: releases what collectives that have finished had pinned.
  void land() {
    if (in_flight_.any()) [[unlikely]] {
      finish_ended();
    }
  }
  // The same for those with these works, without the lock: they have finished.
  void land(std::span<const WorkId> works);
  // The same for the works of these that have no other owner.
  void land_dropped(std::span<const WorkId> works);
  // Without the lock, when the session has stopped.
  void forget_collectives();
  // In the child of a fork.
  void leave_collectives_to_parent() { in_flight_.leave_to_parent(); }

  // ---- the user's wishes ----
  // As Budget::grow, and Budget::shrink.
  void grow(Bytes budget);
  void shrink(Bytes budget);
  // Brings everything back that is evicted. Throws OutOfBudget; then nothing is lost.
  void materialize_all();
  // On a GPU: the host waits for all work.
  void wait_for_device();
  // It stops: bytes that are evicted are lost. What dies is in the graveyard.
  void disown_evicted(const EngineLock& lock);

  // ---- what it writes down ----
  // Before it is in force, one of them: what the program does, as a trace, or what the engine
  // decides.
  void record(const std::string& path);
  void log_decisions();
  // Before it is in force: keeps on whose behalf memory is held and time spent.
  void attribute(const AttributionOptions& options);
  // Null when nobody asked.
  [[nodiscard]] Attributor* attributor(const EngineLock& lock) const {
    return under(lock, attributor_).get();
  }
  // Where in the program this thread is; with no lock held.
  [[nodiscard]] std::uint32_t line() const {
    return attributor_ ? attributor_->line() : Maker::kNone;
  }
  struct Recording {
    explicit Recording(const std::string& path)
        : writer(path), recorder(writer, TraceRecorder::Times::kOfSteps) {}
    TraceWriter writer;
    TraceRecorder recorder;
  };
  [[nodiscard]] bool recording() const { return recording_ != nullptr; }
  // A training step ends here: for a trace, and for Foresight.
  void mark_step(std::string_view name);
  // No plan is made beside the program when this returns. Under its lock.
  void cancel_planning() noexcept;
  // Nor ever after. Without the lock, where the process ends.
  void stop_planning_for_good() noexcept;
  // Null when none was recorded. Its writer is not closed yet.
  std::unique_ptr<Recording> end_recording();
  // Empty unless log_decisions was called.
  [[nodiscard]] std::vector<Decision> decisions(const EngineLock&) const;

 private:
  template <class Part>
  Part& under(const EngineLock& lock, Part& part) const {
    RECOUP_CHECK(lock.is_of(mutex_), "another session's lock");
    return part;
  }
  void observe(Observer* other);  // beside what knows steps; may be null
  void finish_ended();
  void unpin_finished(std::span<const PendingCollective> pending, const EngineLock& lock);

  const std::uint32_t number_;
  std::thread::id thread_;
  const Delay delay_;
  mutable EngineMutex mutex_;
  Turns turns_;
  StorageRecords records_;
  TensorDevice device_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<DecisionLog> log_;
  std::unique_ptr<Attributor> attributor_;
  ObserverPair steps_{nullptr, nullptr};      // what knows steps, and what writes down
  ObserverPair observers_{nullptr, nullptr};  // these, and the attributor's
  Engine engine_;  // its destructor calls the device, and nothing of what follows
  Storages storages_;
  TensorMemory memory_;
  InFlight in_flight_;
  std::unique_ptr<ScheduleRunner> runner_;                // of a policy with a schedule
  std::unique_ptr<Foresight> foresight_;                  // of one that plans evictions
  std::unique_ptr<NextUsePredictor> next_use_predictor_;  // where there is a spill tier
  BlockId bounce_;                                        // of a GPU: what moves go through
};

// A turn for a block of code.
class Turn {
 public:
  Turn(Session& session, const EngineLock& lock) : session_(session), lock_(lock) {
    session.begin_turn(lock);
  }
  ~Turn() {
    if (!goes_on_) {
      session_.end_turn(lock_);
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  // Beyond the block, until somebody calls end_turn.
  void go_on() { goes_on_ = true; }

 private:
  Session& session_;
  const EngineLock& lock_;
  bool goes_on_ = false;
};

}  // namespace recoup::detail
