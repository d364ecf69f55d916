// Session: one engine on one device of this process, with its observers and its memory.
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
#include "csrc/engine/base/observers.h"
#include "csrc/engine/program/engine.h"
#include "csrc/schedule/runner.h"
#include "csrc/share/shared_budget.h"
#include "csrc/steps/evict/foresight.h"
#include "csrc/steps/prefetch/next_use_predictor.h"
#include "csrc/torch/ops/in_flight.h"
#include "csrc/torch/session/attributor.h"
#include "csrc/torch/session/delay.h"
#include "csrc/torch/session/tensor_memory.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storages.h"
#include "csrc/torch/storages/tensor_device.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/writer.h"
#include "recoup/paged.h"
#include "recoup/test_aids.h"

namespace recoup::detail {

class PagedMemory;

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
  // Releases those of these works that have no other owner.
  void land_dropped(std::span<const WorkId> works);
  // Call without the lock, when the session has ended.
  void forget_collectives();
  // Call in the child of a fork.
  void leave_collectives_to_parent() { in_flight_.leave_to_parent(); }

  // ---- requests of the user ----
  void set_budget(Bytes budget);  // as Budget::set_budget
  // As the functions of Budget.
  void share(const std::string& file, Bytes total);
  [[nodiscard]] bool give(Bytes budget);
  [[nodiscard]] Bytes take_recent_peak();
  // Null: the budget is not shared.
  [[nodiscard]] SharedBudget* shared() { return shared_.get(); }
  void reset_peak();
  // As Budget::count_pages and Budget::committed.
  void count_pages();
  [[nodiscard]] Bytes committed();
  // Restores every evicted value. Throws OutOfBudget; then nothing is lost.
  void materialize_all();
  // The host waits for all work of the scope.
  void wait_for_device();
  // The session ends: evicted bytes are lost. Dying objects go to the graveyard.
  void disown_evicted(const EngineLock& lock);

  // ---- observers ----
  // Call one of these before the session is in force: to record the program as a trace, or to log
  // the engine's decisions.
  void record(const std::string& path);
  void log_decisions();
  // Call before the session is in force: records which modules hold memory and spend time.
  void attribute(const AttributionOptions& options);
  // Null unless attribute() was called.
  [[nodiscard]] Attributor* attributor(const EngineLock& lock) const {
    return under(lock, attributor_).get();
  }
  // The program's line on this thread. Call it with no lock held.
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
  // To be called without the lock, which the kernel takes between two runs.
  [[nodiscard]] const Attempts& attempts() const { return engine_.attempts(); }
  [[nodiscard]] const std::string& page_directory() const { return page_directory_; }
  // Before an allocation of paged memory: charges the window. Throws PoolOutOfMemory, and
  // std::system_error or std::invalid_argument if there is no paged memory.
  void charge_page_window();
  // Another scope may have changed the window while this one was suspended.
  void restore_page_window();
  // Since the window was charged; zeros if it was not.
  [[nodiscard]] PagedUse paged_use() const;
  // A training step ends: informs the trace, Foresight and the other observers of steps.
  void mark_step(std::string_view name);
  // Cancels planning on other threads; none goes on when this returns. Call it under the lock.
  void cancel_planning() noexcept;
  // Cancels planning, and forbids it from now on. Call it without the lock, when the process ends.
  void stop_planning_for_good() noexcept;
  // Null if none was recorded. Its writer is not closed yet.
  std::unique_ptr<Recording> end_recording();
  // Empty unless log_decisions was called.
  [[nodiscard]] std::vector<Decision> decisions(const EngineLock&) const;

 private:
  void grow(const EngineLock& lock, Bytes budget);
  void shrink(Bytes budget);
  void give_rest();
  template <class Part>
  Part& under(const EngineLock& lock, Part& part) const {
    RECOUP_CHECK(lock.is_of(mutex_), "another session's lock");
    return part;
  }
  void observe(Observer* other);  // in addition to the observer of steps; may be null
  void finish_ended();
  void unpin_finished(std::span<const PendingCollective> pending, const EngineLock& lock);

  const std::uint32_t number_;
  std::thread::id thread_;
  const Delay delay_;
  const TestAids aids_;
  const Bytes page_window_;
  const std::string page_directory_;
  const PagedMemory* paged_ = nullptr;  // that of this process, if a result was paged
  std::int64_t paged_count_ = 0;        // allocations of paged memory, also those that failed
  PagedUse paged_before_;               // counts of the process before that
  mutable EngineMutex mutex_;
  Turns turns_;
  StorageRecords records_;
  TensorDevice device_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<DecisionLog> log_;
  std::unique_ptr<Attributor> attributor_;
  std::unique_ptr<SharedBudget> shared_;  // its memory is free for others when the engine has ended
  Observers observers_;                   // that of steps, a recorder or log, and the attributor's
  Engine engine_;  // its destructor uses the device, and none of the members below
  Storages storages_;
  TensorMemory memory_;
  InFlight in_flight_;
  std::unique_ptr<ScheduleRunner> runner_;                // for a policy with a schedule
  std::unique_ptr<Foresight> foresight_;                  // for one that plans evictions
  std::unique_ptr<NextUsePredictor> next_use_predictor_;  // if there is a spill tier
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
