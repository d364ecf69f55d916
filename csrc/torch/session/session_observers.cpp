#include "csrc/torch/session/session_observers.h"

#include <utility>

#include "csrc/policy/registry.h"

namespace recoup::detail {

void SessionObservers::plan_steps(const Options& options) {
  const ScheduleKind schedule = find_policy(options.policy).schedule;
  if (schedule != ScheduleKind::kNone) {
    runner_ = std::make_unique<ScheduleRunner>(engine_, schedule, engine_.budget());
    engine_.set_schedule(runner_.get());
  }
  if (has_next_use_predictor(options)) {
    next_use_predictor_ = std::make_unique<NextUsePredictor>(engine_);
    engine_.set_forecast(next_use_predictor_.get());
  }
  if (has_foresight(options)) {
    const bool background = options.planning == Planning::kBackground;
    foresight_ =
        std::make_unique<Foresight>(engine_, Foresight::Settings{.background = background});
    engine_.set_victim_plan(foresight_.get());
  }
  if (runner_ || next_use_predictor_ || foresight_) {
    observe();
  }
}

SessionObservers::~SessionObservers() {
  engine_.set_observer(nullptr);
  engine_.set_makers(nullptr);
  engine_.set_schedule(nullptr);
  engine_.set_victim_plan(nullptr);
  engine_.set_forecast(nullptr);
}

void SessionObservers::observe() {
  Observer* const written = recording_ ? static_cast<Observer*>(&recording_->recorder) : log_.get();
  all_ = {runner_.get(),
          next_use_predictor_.get(),
          foresight_.get(),
          written,
          attributor_ ? &attributor_->ledger() : nullptr,
          attributor_ ? attributor_->timeline() : nullptr};
  engine_.set_observer(&all_);
}

void SessionObservers::record(std::unique_ptr<Recording> recording) {
  recording_ = std::move(recording);
  observe();
}

void SessionObservers::log_decisions() {
  log_ = std::make_unique<DecisionLog>();
  observe();
}

void SessionObservers::attribute(const AttributionOptions& options) {
  attributor_ = std::make_unique<Attributor>(engine_, options);
  observe();
}

std::unique_ptr<SessionObservers::Recording> SessionObservers::end_recording() {
  std::unique_ptr<Recording> ended = std::move(recording_);
  if (ended) {
    observe();
  }
  return ended;
}

void SessionObservers::cancel_planning() noexcept {
  if (foresight_) {
    foresight_->cancel_planning();
  }
}

void SessionObservers::stop_planning_for_good() noexcept {
  if (foresight_) {
    foresight_->stop_planning_for_good();
  }
}

}  // namespace recoup::detail
