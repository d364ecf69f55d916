#include "csrc/torch/session/session.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/torch/storages/request.h"
#include "recoup/torch.h"

namespace recoup::detail {
namespace {

// The environment variable lets any test suite run with the aids, unchanged.
TestAids aids_of(const Options& options) {
  const char* const wanted = std::getenv("RECOUP_TEST_AIDS");
  return wanted != nullptr && *wanted != '\0' ? parse_test_aids(wanted) : options.aids;
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

// Opens the tier first: the engine queries its speed while it is constructed.
Options prepared(TensorDevice& device, Options options) {
  device.open_tier(options);
  options.aids = aids_of(options);
  return device.backend().adjust(std::move(options));
}

}  // namespace

Session::Session(const Options& options, c10::Device device, const StorageHooks& hooks)
    : number_(next_number()),
      delay_(aids_of(options).delay),
      device_(device, number_, hooks, {.engine = engine_, .mutex = mutex_, .records = records_}),
      engine_(prepared(device_, options), device_),
      observers_(engine_),
      storages_(engine_, device_, records_, mutex_),
      overflow_(engine_.options(), storages_, mutex_),
      memory_({.engine = engine_,
               .device = device_,
               .storages = storages_,
               .mutex = mutex_,
               .records = records_,
               .delay = delay_,
               .session = this}) {
  const PolicyInfo& policy = find_policy(options.policy);
  if (policy.simulated_only) {
    throw std::invalid_argument(
        str_cat("policy '", options.policy,
                "' needs knowledge of the future, which only a simulation has"));
  }
  device_.make_arena(engine_.options());
  if (can().bounces) {
    bounce_ = engine_.reserve_bounce();
    device_.backend().set_bounce(device_.arena().at(engine_.pool().offset(bounce_)),
                                 engine_.pool().size(bounce_));
  }
  memory_.publish_use(EngineLock(mutex_));
  observers_.plan_steps(options);
}

void Session::wait_for_replays(const EngineLock& lock) {
  const auto busy = [this] {
    const bool in_place = engine_.op().handover().value().valid();
    return engine_.replaying() || (in_place && !turns_.belongs_to_this_thread());
  };
  if (busy()) {
    mutex_.wait_until(lock, [&busy] { return !busy(); });
  }
}

Bytes Session::take_recent_peak() {
  const EngineLock lock(mutex_);
  return engine_.take_recent_peak();
}

void Session::reset_peak() {
  const EngineLock lock(mutex_);
  engine_.reset_peak();
}

void Session::count_pages() {
  const EngineLock lock(mutex_);
  engine_.count_pages();
}

Bytes Session::committed() {
  const EngineLock lock(mutex_);
  return engine_.committed();
}

// Collectives are destroyed after the lock is released, since they hold tensors of the program.
void Session::land(std::span<const WorkId> works) {
  std::vector<PendingCollective> finished;
  const EngineLock lock(mutex_);
  finished = in_flight_.take(works);
  unpin_finished(finished, lock);
}

void Session::land_dropped(std::span<const WorkId> works) {
  std::vector<PendingCollective> finished;
  const EngineLock lock(mutex_);
  finished = in_flight_.take_dropped(works);
  unpin_finished(finished, lock);
}

void Session::finish_ended() {
  std::vector<Work> works;
  {
    const EngineLock lock(mutex_);
    works = in_flight_.works();
  }
  const Ended ended = ended_among(works);
  if (ended.finished.empty() && ended.dropped.empty()) {
    return;
  }
  land(ended.finished);
  std::vector<PendingCollective> unknown;
  const EngineLock lock(mutex_);
  unknown = in_flight_.take(ended.dropped);
}

void Session::forget_collectives() {
  std::vector<PendingCollective> pending;
  const EngineLock lock(mutex_);
  pending = in_flight_.take_all();
}

void Session::unpin_and_watch(const PinTicket& pin, const EngineLock& lock) {
  Engine& held = engine(lock);
  if (held.values().holds(pin)) {
    storages_.arm(*storages(lock).record(pin.storage).impl);
    held.user().unpin(pin);
  }
}

void Session::unpin_finished(std::span<const PendingCollective> pending, const EngineLock& lock) {
  for (const PendingCollective& collective : pending) {
    for (const PinTicket& pin : collective.pins) {
      unpin_and_watch(pin, lock);
    }
  }
}

void Session::materialize_all() {
  const EngineLock lock(mutex_);
  const Turn turn(*this, lock);
  backend(lock).require_ready(backend(lock).stream());
  const Request request(engine_, device_.external(), "the exit of the scope");
  engine_.user().materialize_all();
  wait_for_device();
}

void Session::wait_for_device() { device_.backend().wait_for_all(); }

void Session::disown_evicted(const EngineLock& lock) {
  storages(lock).disown_evicted();
  if (bounce_.valid()) {
    engine_.free(std::exchange(bounce_, BlockId()));
  }
}

void Session::record(const std::string& path) {
  auto recording = std::make_unique<SessionObservers::Recording>(path);
  if (auto described = device_.backend().traced_as(engine_.options())) {
    described->bounces = bounce_.valid();
    recording->writer.set_device(*described);
  } else if (const Bytes window = OverflowWindow::in_use(); window > Bytes(0)) {
    recording->writer.set_device({.window = window});
  }
  observers_.record(std::move(recording));
}

std::unique_ptr<SessionObservers::Recording> Session::end_recording() {
  const EngineLock lock(mutex_);
  return observers_.end_recording();
}

void Session::mark_step(std::string_view name) {
  const EngineLock lock(mutex_);
  ++steps_;
  wait_for_replays(lock);
  const Request request(engine_, device_.external());
  if (device_.can().segments && device_.brings_in()) {
    engine_.update_segments();
  }
  if (!observers_.observe_steps()) {
    return;
  }
  device_.sweep_external();  // otherwise a trace would lack the end of external tensors
  observers_.end_step(name);
}

}  // namespace recoup::detail
