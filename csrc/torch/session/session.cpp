#include "csrc/torch/session/session.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/disk/paged_memory.h"
#include "csrc/torch/compat/errors.h"
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

PagedUse use_of(const PagedMemory& memory) {
  const PagedMemory::Counters counters = memory.counters();
  return {.now = Bytes(counters.allocated_bytes),
          .most = Bytes(counters.most_bytes),
          .read = Bytes(counters.read_bytes),
          .written = Bytes(counters.written_bytes),
          .disk_time = Nanoseconds(counters.disk_ns)};
}

// An op that runs for longer may wait for another process.
constexpr auto kLongestOp = std::chrono::milliseconds(100);

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
      aids_(aids_of(options)),
      page_window_(device.is_cpu() ? options.page_window : Bytes(0)),
      page_directory_(options.spill_dir),
      device_(device, number_, hooks, {.engine = engine_, .mutex = mutex_, .records = records_}),
      engine_(prepared(device_, options), device_),
      storages_(engine_, device_, records_, mutex_),
      memory_({.engine = engine_,
               .device = device_,
               .storages = storages_,
               .mutex = mutex_,
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
  if (policy.schedule != ScheduleKind::kNone) {
    runner_ = std::make_unique<ScheduleRunner>(engine_, policy.schedule, engine_.budget());
    engine_.set_schedule(runner_.get());
    observe(nullptr);
  }
  if (has_next_use_predictor(options)) {
    next_use_predictor_ = std::make_unique<NextUsePredictor>(engine_);
    engine_.set_planned(next_use_predictor_.get());
    observe(nullptr);
  } else if (has_foresight(options)) {
    const bool background = options.planning == Planning::kBackground;
    foresight_ =
        std::make_unique<Foresight>(engine_, Foresight::Settings{.background = background});
    engine_.set_planned(foresight_.get());
    observe(nullptr);
  }
}

PagedUse Session::paged_use() const {
  const EngineLock lock(mutex_);
  // A forked child has no paged memory, or other.
  if (paged_ == nullptr || paged_ != PagedMemory::of_process()) {
    return {};
  }
  PagedUse use = use_of(*paged_);
  use.read -= paged_before_.read;
  use.written -= paged_before_.written;
  use.disk_time -= paged_before_.disk_time;
  return use;
}

void Session::charge_page_window() {
  const EngineLock lock(mutex_);
  if (aids_.strikes(aids_.fail_page, ++paged_count_)) {
    throw std::system_error(ENOSPC, std::generic_category(), "recoup: injected");
  }
  PagedMemory& paged = PagedMemory::in(page_directory_);
  const Bytes before = paged.window();
  paged.set_window(std::min(page_window_, before));  // before less is charged
  try {
    storages_.charge_window(page_window_);
  } catch (const OutOfBudget& error) {
    paged.set_window(before);
    throw PoolOutOfMemory(error.report(), this);
  }
  paged.set_window(page_window_);
  if (std::exchange(paged_, &paged) != &paged) {
    paged.reset_most();
    paged_before_ = use_of(paged);
  }
}

void Session::restore_page_window() {
  const EngineLock lock(mutex_);
  PagedMemory* const paged = PagedMemory::of_process();
  if (paged != nullptr && storages_.window() > Bytes(0)) {
    paged->set_window(storages_.window());
  }
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

void Session::set_budget(Bytes budget) {
  const EngineLock lock(mutex_);
  budget = backend(lock).budget(budget);
  if (budget < engine_.budget()) {
    backend(lock).require_can_shrink();
    // Between ops, as kernels hold memory that cannot be moved.
    const Turn turn(*this, lock, /*next=*/true);
    if (budget < engine_.budget()) {  // another thread may have set one meanwhile
      shrink(budget);
      give_rest();
      return;
    }
  }
  if (const Bytes now = engine_.budget(); budget > now) {
    if (shared_) {
      shared_->force(budget);
    }
    grow(lock, budget);
  }
}

void Session::share(const std::string& file, Bytes total) {
  if (total > engine_.budget()) {
    throw std::invalid_argument("a shared budget is at most the budget of its scope");
  }
  auto shared = std::make_unique<SharedBudget>(file, total);
  set_budget(shared->part());
  const EngineLock lock(mutex_);
  shared_ = std::move(shared);
  engine_.set_more(shared_.get());
}

bool Session::give(Bytes budget) {
  RECOUP_CHECK(shared_ != nullptr);
  if (!shared_->is_of_this_process()) {
    return false;
  }
  const EngineLock lock(mutex_);
  const auto busy = [this] { return engine_.replaying(); };
  if (!turns_.begin_within(mutex_, lock, busy, kLongestOp)) {
    // The op may wait for memory of the process that this memory is for.
    if (engine_.budget() <= budget || !engine_.shrink_by_free(budget)) {
      return false;
    }
  } else {
    const Turn turn(*this, Turn::Begun{}, lock);
    try {
      if (budget < engine_.budget()) {
        shrink(budget);
      }
    } catch (const OutOfBudget&) {
      return false;
    }
  }
  give_rest();
  return true;
}

// Gives the part of this process beyond its budget to the others.
void Session::give_rest() {
  if (shared_) {
    shared_->give(shared_->part() - engine_.budget());
  }
}

Bytes Session::take_recent_peak() {
  const EngineLock lock(mutex_);
  return engine_.take_recent_peak();
}

void Session::grow(const EngineLock& lock, Bytes budget) {
  backend(lock).back(device_.arena(), budget - engine_.outside());
  memory_.publish_use(lock);
  engine_.grow(budget);
}

void Session::shrink(Bytes budget) {
  const Request request(engine_, device_.external(), "the change to a smaller budget");
  engine_.shrink(budget);
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
  backend(lock).require_ready();
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
  recording_ = std::make_unique<Recording>(path);
  const PagedMemory* const paged = PagedMemory::of_process();
  if (auto described = device_.backend().traced_as(engine_.options())) {
    described->bounces = bounce_.valid();
    recording_->writer.set_device(*described);
  } else if (paged != nullptr && paged->counters().allocated_bytes > 0) {
    recording_->writer.set_device({.window = paged->window()});
  }
  observe(&recording_->recorder);
}

void Session::mark_step(std::string_view name) {
  const EngineLock lock(mutex_);
  const Request request(engine_, device_.external());
  if (device_.can().segments && device_.brings_in()) {
    wait_for_replays(lock);
    engine_.update_segments();
  }
  if (!recording_ && !runner_ && !foresight_ && !next_use_predictor_ && !attributor_) {
    return;
  }
  wait_for_replays(lock);
  device_.sweep_external();  // otherwise a trace would lack the end of external tensors
  observers_.on_step(name);
}

void Session::cancel_planning() noexcept {
  if (foresight_) {
    foresight_->cancel_planning();
  }
}

void Session::stop_planning_for_good() noexcept {
  if (foresight_) {
    foresight_->stop_planning_for_good();
  }
}

std::unique_ptr<Session::Recording> Session::end_recording() {
  const EngineLock lock(mutex_);
  if (recording_) {
    observe(nullptr);
  }
  return std::move(recording_);
}

void Session::log_decisions() {
  log_ = std::make_unique<DecisionLog>();
  observe(log_.get());
}

void Session::observe(Observer* other) {
  Observer* steps = runner_.get();
  if (foresight_) {
    steps = foresight_.get();
  } else if (next_use_predictor_) {
    steps = next_use_predictor_.get();
  }
  observers_ = {steps, other, attributor_ ? &attributor_->ledger() : nullptr,
                attributor_ ? attributor_->timeline() : nullptr};
  engine_.set_observer(&observers_);
}

void Session::attribute(const AttributionOptions& options) {
  attributor_ = std::make_unique<Attributor>(engine_, options);
  Observer* const written = recording_ ? static_cast<Observer*>(&recording_->recorder) : log_.get();
  observe(written);
}

std::vector<Decision> Session::decisions(const EngineLock&) const {
  return log_ ? log_->decisions() : std::vector<Decision>();
}

}  // namespace recoup::detail
