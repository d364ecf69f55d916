// The public interface for LibTorch programs, on top of Session.
#include <c10/util/Exception.h>

#include "csrc/torch/api/budget_scope.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"
#include "recoup/torch.h"

namespace recoup {

using detail::EngineLock;
using detail::Session;
using detail::Sessions;

namespace {

void require_active(bool active) {
  if (!active) {
    throw std::logic_error("recoup: this budget is not active: enter it first");
  }
}

c10::Device parse_device(const std::string& name) {
  try {
    const c10::Device device(name);
    if (device.is_cpu()) {
      return c10::Device(c10::kCPU);
    }
    return device.has_index() ? device : c10::Device(device.type(), 0);
  } catch (const c10::Error& error) {
    throw std::invalid_argument(error.what_without_backtrace());
  }
}

}  // namespace

Budget::Budget(const Options& options, const std::string& device)
    : scope_(std::make_unique<detail::BudgetScope>(options, parse_device(device))) {}

Budget::~Budget() { end_as_it_is(/*keeps_trace=*/false); }

bool Budget::suspended() const { return scope_ != nullptr && scope_->in_force() && !entered(); }

bool Budget::entered() const {
  return scope_ != nullptr && Sessions::on(scope_->session().device()) == &scope_->session();
}

void Budget::enter() {
  if (!scope_) {
    throw std::logic_error("recoup: a budget can be entered only once: create a new one");
  }
  scope_->enter();
}

void Budget::leave() {
  require_active(scope_ && scope_->in_force());
  scope_->leave();
  keep_results();
  const auto recording = scope_->session().end_recording();
  scope_.reset();
  if (recording) {
    recording->writer.close();
  }
}

void Budget::keep_results() {
  last_stats_ = stats();
  last_pinned_ = pinned();
  last_copy_waits_ = copy_waits();
  last_decisions_ = decisions();
  last_attribution_ = attribution();
  last_paged_ = paged_use();
  if (scope_->budget().shared() != nullptr) {
    last_share_ = share_counters();
  }
}

void Budget::abandon() { end_as_it_is(/*keeps_trace=*/true); }

void Budget::end_as_it_is(bool keeps_trace) {
  std::unique_ptr<detail::SessionObservers::Recording> recording;
  if (scope_ && scope_->in_force()) {
    keep_results();
    recording = keeps_trace ? scope_->session().end_recording() : nullptr;
    if (!scope_->abandon()) {
      (void)scope_.release();  // never destroyed: its thread may be in it
    }
  }
  scope_.reset();
  if (recording) {
    recording->writer.close();
  }
}

void Budget::set_budget(Bytes budget) {
  require_active(scope_ != nullptr);
  scope_->budget().set(budget);
}

detail::SharedBudget& Budget::shared() const {
  detail::SharedBudget* const shared = scope_ ? scope_->budget().shared() : nullptr;
  if (shared == nullptr) {
    throw std::logic_error("recoup: this budget is not shared, or has ended");
  }
  return *shared;
}

void Budget::share(const std::string& file, Bytes total) {
  if (!scope_ || scope_->in_force() || !scope_->session().device().is_cpu()) {
    throw std::logic_error("recoup: share a budget of the CPU before it is entered");
  }
  scope_->budget().share(file, total);
}

bool Budget::give(Bytes budget) {
  (void)shared();
  return scope_->budget().give(budget);
}

void Budget::publish_share(Bytes demand, Bytes workers) { shared().publish(demand, workers); }

void Budget::limit_share(Bytes limit) { shared().set_limit(limit); }

std::vector<SharePart> Budget::share_parts() const { return shared().parts(); }

ShareCounters Budget::share_counters() const { return scope_ ? shared().counters() : last_share_; }

PagedUse Budget::paged_use() const {
  return scope_ ? scope_->session().overflow().use() : last_paged_;
}

Bytes Budget::take_recent_peak() {
  require_active(scope_ != nullptr);
  return scope_->session().take_recent_peak();
}

void Budget::reset_peak() {
  require_active(scope_ != nullptr);
  scope_->session().reset_peak();
}

void Budget::count_pages() {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: count the pages before the budget is entered");
  }
  scope_->session().count_pages();
}

Bytes Budget::committed() const {
  require_active(scope_ != nullptr);
  return scope_->session().committed();
}

void Budget::record(const std::string& path) {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: request a trace before the budget is entered");
  }
  scope_->session().record(path);
}

void Budget::offer(const at::Tensor& tensor) {
  if (!entered()) {
    throw std::logic_error("recoup: enter the budget before you offer tensors to it");
  }
  if (!tensor.defined() || !tensor.has_storage()) {
    return;
  }
  const detail::Visit visit;
  Session& session = scope_->session();
  const EngineLock lock(session.mutex());
  if (c10::StorageImpl* const storage = session.tensors().managed(tensor.storage())) {
    session.storages(lock).offer(*storage);
  }
}

void Budget::end_offers() {
  if (!entered()) {
    throw std::logic_error("recoup: enter the budget before you offer tensors to it");
  }
  const detail::Visit visit;
  Session& session = scope_->session();
  const EngineLock lock(session.mutex());
  session.storages(lock).end_offers();
}

void Budget::mark_step(const std::string& name) {
  if (scope_) {
    scope_->session().mark_step(name);
  }
}

void Budget::log_decisions() {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: request decisions before the budget is entered");
  }
  scope_->session().observers().log_decisions();
}

std::vector<Decision> Budget::decisions() const {
  if (!scope_) {
    return last_decisions_;
  }
  const EngineLock lock(scope_->session().mutex());
  return scope_->session().observers(lock).decisions();
}

void Budget::attribute(const AttributionOptions& options) {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: request attribution before the budget is entered");
  }
  scope_->session().observers().attribute(options);
}

void Budget::set_name(const at::Tensor& tensor, std::uint32_t name) {
  if (!scope_ || !scope_->in_force() || !tensor.defined() || !tensor.has_storage()) {
    return;
  }
  const detail::Visit visit;
  Session& session = scope_->session();
  c10::StorageImpl* const storage = session.tensors().managed(tensor.storage());
  if (storage == nullptr) {
    return;
  }
  const EngineLock lock(session.mutex());
  if (detail::Attributor* const attributor = session.observers(lock).attributor()) {
    if (const StorageId id = session.storages(lock).find_known(*storage); id.valid()) {
      session.engine(lock).set_name(id, NameId(name));
      attributor->ledger().name(id, NameId(name));
    }
  }
}

void Budget::add_rule(std::uint32_t module, StorageRule rule) {
  if (scope_ && scope_->in_force()) {
    const EngineLock lock(scope_->session().mutex());
    if (detail::Attributor* const attributor = scope_->session().observers(lock).attributor()) {
      attributor->add_rule(module, rule);
    }
  }
}

Attribution Budget::attribution() const {
  if (!scope_) {
    return last_attribution_;
  }
  const EngineLock lock(scope_->session().mutex());
  const detail::Attributor* const attributor = scope_->session().observers(lock).attributor();
  return attributor == nullptr ? Attribution() : attributor->result();
}

std::size_t enter_module(std::uint32_t module, bool optimizer) {
  return detail::enter_module(module, optimizer);
}

void leave_module(std::size_t depth) { detail::leave_module(depth); }

Stats Budget::stats() const {
  if (!scope_) {
    return last_stats_;
  }
  const EngineLock lock(scope_->session().mutex());
  Stats stats = scope_->session().engine(lock).stats();
  stats.graph_bytes = scope_->session().memory().graph_blocks(lock).used().count();
  return stats;
}

std::vector<PinnedRow> Budget::pinned() const {
  if (!scope_) {
    return last_pinned_;
  }
  const EngineLock lock(scope_->session().mutex());
  return scope_->session().engine(lock).user().pinned();
}

std::vector<CopyWaitRow> Budget::copy_waits() const {
  if (!scope_) {
    return last_copy_waits_;
  }
  const EngineLock lock(scope_->session().mutex());
  return scope_->session().engine(lock).copy_waits();
}

void Budget::check() const {
  if (scope_) {
    const EngineLock lock(scope_->session().mutex());
    scope_->session().engine(lock).check();
    if (const detail::Attributor* const attributor =
            scope_->session().observers(lock).attributor()) {
      attributor->check();
    }
    scope_->session().backend(lock).check();
  }
}

}  // namespace recoup
