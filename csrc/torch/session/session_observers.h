// SessionObservers: what observes the engine of a session, and what plans its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/engine/base/decisions.h"
#include "csrc/engine/base/observers.h"
#include "csrc/engine/program/engine.h"
#include "csrc/schedule/runner.h"
#include "csrc/steps/evict/foresight.h"
#include "csrc/steps/prefetch/next_use_predictor.h"
#include "csrc/torch/session/attributor.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/writer.h"

namespace recoup::detail {

// Methods are called under the session's lock, unless they are marked otherwise.
class SessionObservers {
 public:
  // The engine must outlive this object.
  explicit SessionObservers(Engine& engine) : engine_(engine) {}
  ~SessionObservers();
  SessionObservers(const SessionObservers&) = delete;
  SessionObservers& operator=(const SessionObservers&) = delete;

  struct Recording {
    explicit Recording(const std::string& path)
        : writer(path), recorder(writer, TraceRecorder::Times::kOfSteps) {}
    TraceWriter writer;
    TraceRecorder recorder;
  };

  // Makes what the policy plans steps with. To be called without the lock, before the first op.
  void plan_steps(const Options& options);

  // ---- before the session is in force, without the lock; at most one of record and log_decisions
  // Records the program as a trace.
  void record(std::unique_ptr<Recording> recording);
  void log_decisions();
  // Records which modules hold memory and spend time.
  void attribute(const AttributionOptions& options);

  // Without the lock.
  [[nodiscard]] bool recording() const { return recording_ != nullptr; }
  // The program's line on this thread. Call it with no lock held.
  [[nodiscard]] std::uint32_t line() const {
    return attributor_ ? attributor_->line() : Maker::kNone;
  }
  // Null unless attribute() was called.
  [[nodiscard]] Attributor* attributor() const { return attributor_.get(); }
  // Empty unless log_decisions was called.
  [[nodiscard]] std::vector<Decision> decisions() const {
    return log_ ? log_->decisions() : std::vector<Decision>();
  }
  // Null if none was recorded. Its writer is not closed yet.
  [[nodiscard]] std::unique_ptr<Recording> end_recording();

  // Whether a part observes the ends of steps.
  [[nodiscard]] bool observe_steps() const {
    return recording_ || runner_ || foresight_ || next_use_predictor_ || attributor_;
  }
  void end_step(std::string_view name) { all_.on_step(name); }
  // Cancels planning on other threads; none goes on when this returns.
  void cancel_planning() noexcept;
  // Cancels planning, and forbids it from now on. Call it without the lock, when the process ends.
  void stop_planning_for_good() noexcept;

 private:
  void observe();

  Engine& engine_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<DecisionLog> log_;
  std::unique_ptr<Attributor> attributor_;
  std::unique_ptr<ScheduleRunner> runner_;                // for a policy with a schedule
  std::unique_ptr<Foresight> foresight_;                  // for one that plans evictions
  std::unique_ptr<NextUsePredictor> next_use_predictor_;  // if there is a spill tier
  Observers all_;
};

}  // namespace recoup::detail
