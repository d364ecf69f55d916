// Requests for a tensor or the process: the free functions of the public interface.
#include <c10/util/Exception.h>
#include <unistd.h>

#include "csrc/torch/calls/dispatch.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/frames/access_hooks.h"
#include "csrc/torch/ops/overrides.h"
#include "csrc/torch/ops/traits_table.h"
#include "csrc/torch/session/allocator.h"
#include "csrc/torch/session/evicted_access.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"
#include "csrc/torch/storages/private_memory.h"
#include "csrc/torch/storages/request.h"
#include "recoup/bindings.h"

namespace recoup {

using detail::EngineLock;
using detail::Session;
using detail::Sessions;

namespace {

// Replays run only on threads of the scope.
void require_resident(const Session& session, const detail::Engine& engine, StorageId storage) {
  if (!detail::on_scope_thread() && !engine.value(engine.current(storage)).resident()) {
    detail::tell_of_outside_access();
    TORCH_CHECK(false, session.tensors().evicted_message());
  }
}

// The suspended session that evicted the tensor; null if there is none. Call it in a Visit.
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

// Treatment of storages that no op has seen yet. One in the pool could be moved when an op sees it;
// one made outside could be written by other code.
enum class Unknown : std::uint8_t { kIgnore, kAdopt, kRegister };

// Calls function(session, lock, storage id) for a tensor that the active session knows, or
// registers here.
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
  const detail::Request request(session->engine(lock), session->tensors().external());
  try {
    c10::StorageImpl& impl = *tensor.storage().unsafeGetStorageImpl();
    detail::Storages& storages = session->storages(lock);
    StorageId storage = storages.find_known(impl);
    const bool managed = session->tensors().managed(tensor.storage()) != nullptr;
    const bool adopted =
        !storage.valid() && unknown == Unknown::kAdopt && storages.unowned_block(impl).valid();
    if (managed && (adopted || unknown == Unknown::kRegister)) {
      storage = storages.find(impl);  // also if known: it may have other bytes by now
    }
    if (!storage.valid() && unknown == Unknown::kAdopt) {
      storages.withdraw(impl);  // find() will pin it
    }
    if (storage.valid()) {
      function(*session, lock, storage);
    }
  } catch (const OutOfBudget& error) {
    detail::throw_out_of_budget(error.report());
  }
}

// The caller uses the tensor's address on its current stream.
void use_address(Session& session, const EngineLock& lock, const at::Tensor& tensor) {
  c10::StorageImpl& impl = *tensor.storage().unsafeGetStorageImpl();
  session.backend(lock).use(impl._mutable_data_ptr_no_checks().get(),
                            Bytes(static_cast<std::int64_t>(impl.nbytes())));
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

void set_rule(const at::Tensor& tensor, StorageRule rule) {
  with_known(tensor, Unknown::kRegister,
             [&](Session& session, const EngineLock& lock, StorageId storage) {
               session.engine(lock).user().set_rule(storage, rule);
             });
}

void materialize(const at::Tensor& tensor) {
  refuse_suspended(tensor);
  with_known(tensor, Unknown::kIgnore,
             [&](Session& session, const EngineLock& lock, StorageId storage) {
               detail::Engine& engine = session.engine(lock);
               require_resident(session, engine, storage);
               engine.restore(engine.current(storage));
               use_address(session, lock, tensor);
             });
}

namespace {

// Calls act(session, lock, storage) for the storage of a tensor whose address is given to code that
// may write there.
template <class Act>
void give_address(const at::Tensor& tensor, const Act& act) {
  if (detail::in_graph()) {
    return;  // the graph keeps no pointer after its return
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
        "recoup: a tensor's address was requested on a thread outside the budget scope, while "
        "evicted tensors must be recomputed from its content. Hold recoup.pin on the tensor, or "
        "first call recoup.materialize on the tensors computed from it");
        act(session, lock, storage);
        use_address(session, lock, tensor);
      });
}

}  // namespace

bool escape(const at::Tensor& tensor, Address address) {
  bool is_new = false;
  give_address(tensor, [&](Session& session, const EngineLock& lock, StorageId storage) {
    detail::UserRequests& user = session.engine(lock).user();
    if (address == Address::kNew && session.can().leaves_pool) {
      is_new = user.escape_and_leave(storage);
    } else {
      is_new = user.escape(storage);
    }
  });
  return is_new;
}

void set_address_line(const at::Tensor& tensor, LineId line) {
  with_known(tensor, Unknown::kIgnore,
             [line](Session& session, const EngineLock& lock, StorageId storage) {
               session.engine(lock).user().set_address_line(storage, line);
             });
}

Shown::Shown(const at::Tensor& tensor) {
  give_address(tensor, [&](Session& session, const EngineLock& lock, StorageId storage) {
    const detail::PinTicket ticket =
        session.engine(lock).user().show(storage, session.can().leaves_pool);
    storage_ = ticket.storage;
    birth_ = ticket.birth;
    session_ = &session;
    // The caller takes the address for the object, which is no escape in another way.
    session.storages().disarm(*tensor.storage().unsafeGetStorageImpl());
  });
}

void Shown::end() {
  const detail::Visit visit;
  Sessions::for_each([this](Session& session) {
    if (session_ == &session) {
      const EngineLock lock(session.mutex());
      const detail::Request request(session.engine(lock), session.tensors().external());
      session.engine(lock).user().end_show({.storage = storage_, .birth = birth_});
    }
  });
  session_ = nullptr;
}

void withdraw_offers() {
  const detail::Visit visit;
  Sessions::for_each([](Session& session) {
    const EngineLock lock(session.mutex());
    session.wait_for_replays(lock);
    const detail::Request request(session.engine(lock), session.tensors().external());
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
  const detail::Request request(session->engine(lock), session->tensors().external());
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

bool is_unused_mapping(const at::Tensor& tensor) {
  bool unused = false;
  if (tensor.has_storage() && detail::is_private_mapping(tensor.storage())) {
    unused = true;
    with_known(tensor, Unknown::kIgnore,
               [&](Session&, const EngineLock&, StorageId) { unused = false; });
  }
  return unused;
}

void learn_slices(const at::Tensor& slice, const at::Tensor& whole) {
  detail::learn_slices(slice.storage(), whole.storage());
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

bool carries() { return detail::on_scope_thread(); }

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
               use_address(session, lock, tensor);
             });
}

Pin::~Pin() { release(); }

void Pin::release() {
  const detail::Visit visit;
  Sessions::for_each([this](Session& session) {
    if (session_ == &session) {
      const EngineLock lock(session.mutex());
      const detail::Request request(session.engine(lock), session.tensors().external());
      session.engine(lock).user().unpin({.storage = storage_, .birth = birth_});
    }
  });
  session_ = nullptr;
}

void set_out_of_budget_thrower(OutOfBudgetThrower thrower) {
  detail::set_out_of_budget_thrower(thrower);
}

}  // namespace recoup
