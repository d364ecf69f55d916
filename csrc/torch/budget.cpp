// The public face for LibTorch programs, over Session.
#include <c10/util/Exception.h>
#include <unistd.h>

#include "csrc/torch/access_hooks.h"
#include "csrc/torch/allocator.h"
#include "csrc/torch/budget_scope.h"
#include "csrc/torch/dispatch.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/overrides.h"
#include "csrc/torch/scope_thread.h"
#include "csrc/torch/session.h"
#include "csrc/torch/sessions.h"
#include "csrc/torch/traits_table.h"
#include "recoup/torch.h"

namespace recoup {

using detail::EngineLock;
using detail::Session;
using detail::Sessions;

namespace {

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
    throw std::logic_error("recoup: a budget can be entered once");
  }
  scope_->enter();
}

void Budget::leave() {
  if (!scope_ || !scope_->in_force()) {
    throw std::logic_error("recoup: this budget is not in force");
  }
  scope_->leave();
  last_stats_ = stats();
  last_pinned_ = pinned();
  last_copy_waits_ = copy_waits();
  last_decisions_ = decisions();
  last_attribution_ = attribution();
  const auto recording = scope_->session().end_recording();
  scope_.reset();
  if (recording) {
    recording->writer.close();
  }
}

void Budget::abandon() { end_as_it_is(/*keeps_trace=*/true); }

void Budget::end_as_it_is(bool keeps_trace) {
  std::unique_ptr<Session::Recording> recording;
  if (scope_ && scope_->in_force()) {
    last_stats_ = stats();
    last_pinned_ = pinned();
    last_copy_waits_ = copy_waits();
    last_attribution_ = attribution();
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

void Budget::grow(Bytes budget) {
  if (!scope_) {
    throw std::logic_error("recoup: this budget is not in force");
  }
  scope_->session().grow(budget);
}

void Budget::shrink(Bytes budget) {
  if (!scope_) {
    throw std::logic_error("recoup: this budget is not in force");
  }
  scope_->session().shrink(budget);
}

void Budget::record(const std::string& path) {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: a trace is recorded from the scope's beginning");
  }
  scope_->session().record(path);
}

void Budget::offer(const at::Tensor& tensor) {
  if (!entered()) {
    throw std::logic_error("recoup: tensors are offered to a budget that is entered");
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

void Budget::mark_step(const std::string& name) {
  if (scope_) {
    scope_->session().mark_step(name);
  }
}

void Budget::log_decisions() {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: decisions are kept from the scope's beginning");
  }
  scope_->session().log_decisions();
}

std::vector<Decision> Budget::decisions() const {
  if (!scope_) {
    return last_decisions_;
  }
  const EngineLock lock(scope_->session().mutex());
  return scope_->session().decisions(lock);
}

void Budget::attribute(const AttributionOptions& options) {
  if (!scope_ || scope_->in_force()) {
    throw std::logic_error("recoup: who holds memory is kept from the scope's beginning");
  }
  scope_->session().attribute(options);
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
  if (detail::Attributor* const attributor = session.attributor(lock)) {
    if (const StorageId id = session.storages(lock).find_known(*storage); id.valid()) {
      session.engine(lock).set_name(id, NameId(name));
      attributor->ledger().name(id, NameId(name));
    }
  }
}

Attribution Budget::attribution() const {
  if (!scope_) {
    return last_attribution_;
  }
  const EngineLock lock(scope_->session().mutex());
  const detail::Attributor* const attributor = scope_->session().attributor(lock);
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
  return scope_->session().engine(lock).stats();
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
    if (const detail::Attributor* const attributor = scope_->session().attributor(lock)) {
      attributor->check();
    }
    if (const detail::Gpu* const gpu = scope_->session().gpu(lock)) {
      gpu->check();
    }
  }
}

namespace {

// Replays run on the scope's own threads only.
void require_resident(const Session& session, const detail::Engine& engine, StorageId storage) {
  TORCH_CHECK(detail::on_scope_thread() || engine.value(engine.current(storage)).resident(),
              session.tensors().evicted_message());
}

// The session whose exit did not fit, if it has the tensor's bytes. In a Visit.
const Session* suspended_owner(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return nullptr;
  }
  const Session* const session =
      detail::session_of_evicted(*tensor.storage().unsafeGetStorageImpl());
  return session == nullptr || Sessions::on(session->device()) == session ? nullptr : session;
}

void refuse_suspended(const at::Tensor& tensor) {
  const detail::Visit visit;
  if (const Session* const session = suspended_owner(tensor)) {
    TORCH_CHECK(false, session->tensors().evicted_message());
  }
}

// Of storages that no op has seen yet: those in the pool could be moved when one does, those made
// outside could be written by others.
enum class Unknown : std::uint8_t { kIgnore, kAdopt, kRegister };

// Calls function(session, lock, storage id) for a tensor that the active session knows, or comes
// to.
template <class Function>
void with_known(const at::Tensor& tensor, Unknown unknown, Function&& function) {
  if (!tensor.defined() || !tensor.has_storage()) {
    return;
  }
  const detail::Visit visit;
  Session* const session = Sessions::on(tensor.device());
  if (session == nullptr) {
    return;
  }
  const EngineLock lock(session->mutex());
  session->wait_for_replays(lock);
  try {
    c10::StorageImpl& impl = *tensor.storage().unsafeGetStorageImpl();
    detail::Storages& storages = session->storages(lock);
    StorageId storage = storages.find_known(impl);
    const bool managed = session->tensors().managed(tensor.storage()) != nullptr;
    const bool adopted =
        !storage.valid() && unknown == Unknown::kAdopt && storages.unowned_block(impl).valid();
    if (managed && (adopted || unknown == Unknown::kRegister)) {
      storage = storages.find(impl);  // known ones too: they may have other bytes by now
    }
    if (!storage.valid() && unknown == Unknown::kAdopt) {
      storages.withdraw(impl);  // it is pinned
    }
    if (storage.valid()) {
      function(*session, lock, storage);
      // What the caller does with the address is work of its stream.
      if (detail::Gpu* const gpu = session->gpu(lock)) {
        gpu->use(impl._mutable_data_ptr_no_checks().get(),
                 Bytes(static_cast<std::int64_t>(impl.nbytes())));
      }
    }
  } catch (const OutOfBudget& error) {
    detail::throw_out_of_budget(error.report());
  }
}

}  // namespace

bool evict(const at::Tensor& tensor) {
  bool evicted = false;
  with_known(tensor, Unknown::kIgnore,
             [&](Session& session, const EngineLock& lock, StorageId storage) {
               evicted = session.engine(lock).user().evict(storage);
             });
  return evicted;
}

bool is_resident(const at::Tensor& tensor) {
  const detail::Visit visit;
  bool resident = suspended_owner(tensor) == nullptr;
  with_known(tensor, Unknown::kIgnore,
             [&](Session& session, const EngineLock& lock, StorageId storage) {
               const detail::Engine& engine = session.engine(lock);
               resident = engine.value(engine.current(storage)).resident();
             });
  return resident;
}

void materialize(const at::Tensor& tensor) {
  refuse_suspended(tensor);
  with_known(tensor, Unknown::kIgnore,
             [&](Session& session, const EngineLock& lock, StorageId storage) {
               detail::Engine& engine = session.engine(lock);
               require_resident(session, engine, storage);
               const ValueId one[] = {engine.current(storage)};
               engine.acquire(one);
               engine.release(one);
             });
}

void escape(const at::Tensor& tensor) {
  if (detail::in_graph()) {
    return;  // the graph keeps no pointer beyond its return
  }
  refuse_suspended(tensor);
  if (tensor.defined() && tensor.has_storage()) {
    detail::refuse_if_suspended_needs(*tensor.storage().unsafeGetStorageImpl());
  }
  with_known(
      tensor, Unknown::kRegister, [&](Session& session, const EngineLock& lock, StorageId storage) {
        require_resident(session, session.engine(lock), storage);
        TORCH_CHECK(
        detail::on_scope_thread() || !session.engine(lock).user().has_needed_dependents(storage),
        "recoup: evicted tensors depend on this one's content, and it was asked for its address on a "
        "thread outside the budget scope. Hold recoup.pin on it, or materialize them first");
        session.engine(lock).user().escape(storage);
      });
}

void withdraw_offers() {
  const detail::Visit visit;
  Sessions::for_each([](Session& session) {
    const EngineLock lock(session.mutex());
    session.wait_for_replays(lock);
    session.storages(lock).withdraw_all();
  });
}

void charge(const at::Tensor& tensor) {
  with_known(tensor, Unknown::kRegister, [](Session&, const EngineLock&, StorageId) {});
}

Reservation::Reservation(Bytes size) {
  const detail::Visit visit;
  Session* const session = Sessions::on_cpu();
  if (session == nullptr || size <= Bytes(0)) {
    return;
  }
  const EngineLock lock(session->mutex());
  session->wait_for_replays(lock);
  try {
    storage_ = session->storages(lock).reserve(size);
    session_ = session;
  } catch (const OutOfBudget& error) {
    detail::throw_out_of_budget(error.report());
  }
}

Reservation::~Reservation() { release(); }

void Reservation::release() {
  const detail::Visit visit;
  Session* const session = Sessions::on_cpu();
  if (session != nullptr && std::exchange(session_, nullptr) == session) {
    const EngineLock lock(session->mutex());
    session->storages(lock).release_reserved(storage_);
  }
}

bool grows_outside(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.is_cpu() &&
         tensor.storage().allocator() == detail::plain_allocator();
}

bool in_pool(const at::Tensor& tensor) {
  bool found = false;
  with_known(tensor, Unknown::kIgnore, [&](Session& session, const EngineLock&, StorageId) {
    const c10::DataPtr& data =
        tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
    found = session.tensors().in_pool(data) || session.tensors().is_evicted(data);
  });
  return found;
}

bool active() { return Sessions::any(); }

void allow_replay(const std::string& name) { detail::TraitsTable::instance().allow_replay(name); }

Bytes physical_memory() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES);
  constexpr Bytes kUnknown(std::int64_t{1} << 40);
  return pages > 0 ? Bytes(pages * std::int64_t{sysconf(_SC_PAGESIZE)}) : kUnknown;
}

bool carry(bool on) {
  const bool was = detail::on_scope_thread();
  detail::set_scope_thread(on);
  return was;
}

std::vector<NamedOp> named_ops() { return detail::known_names(); }

std::vector<std::string> overridden_ops() { return detail::overridden_ops(); }

void install_hook() { detail::watch_ops(); }

const char* hook_name() { return detail::Hook::name(); }

bool set_unseen(bool on) {
  const bool was = detail::inside_op();
  detail::Hook::set_inside(on);
  return was;
}

void pass_through(bool on) {
  if (!active()) {
    detail::set_scope_thread(on);
  }
}

Pin::Pin(const at::Tensor& tensor) {
  refuse_suspended(tensor);
  with_known(tensor, Unknown::kAdopt,
             [&](Session& session, const EngineLock& lock, StorageId storage) {
               require_resident(session, session.engine(lock), storage);
               const detail::PinTicket ticket = session.engine(lock).user().pin(storage);
               storage_ = ticket.storage;
               birth_ = ticket.birth;
               session_ = &session;
             });
}

Pin::~Pin() { release(); }

void Pin::release() {
  const detail::Visit visit;
  Sessions::for_each([this](Session& session) {
    if (session_ == &session) {
      const EngineLock lock(session.mutex());
      session.engine(lock).user().unpin({.storage = storage_, .birth = birth_});
    }
  });
  session_ = nullptr;
}

void set_out_of_budget_thrower(OutOfBudgetThrower thrower) {
  detail::set_out_of_budget_thrower(thrower);
}

}  // namespace recoup
