#include "csrc/torch/session.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <thread>

#include "csrc/torch/bypass.h"
#include "csrc/torch/errors.h"

namespace recoup::detail {
namespace {

// Numbers that the argument parser wraps into tensors are allocated outside of any kernel, one an
// op.
constexpr std::size_t kWrappedNumber = 16;

// Of what the plain allocator gives; it has only this one.
const c10::DeleterFnPtr plain_deleter = plain_allocator()->raw_deleter();

Bytes physical_memory() {
  return Bytes(sysconf(_SC_PHYS_PAGES)).count() > 0
             ? Bytes(std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE))
             : Bytes(std::int64_t{1} << 40);
}

// The budget may grow, up to the machine's memory; addresses cost nothing.
Bytes arena_size(const Options& options) { return std::max(options.budget, physical_memory()); }

}  // namespace

std::atomic<Session*> Session::active_{nullptr};

// Sessions that could not be left yet. Few, and looked at only for pointers that are not the active
// one's.
struct Suspended {
  std::mutex mutex;
  std::vector<Session*> sessions;

  // Never destroyed: storages may die after static destructors have run.
  static Suspended& instance() {
    static auto* const suspended = new Suspended;
    return *suspended;
  }
};

Session* Session::owner_of(const void* pointer) {
  if (Session* const session = active(); session != nullptr && session->owns(pointer)) {
    return session;
  }
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  for (Session* const session : suspended.sessions) {
    if (session->owns(pointer)) {
      return session;
    }
  }
  return nullptr;
}

Session::Session(const Options& options)
    : arena_(std::make_unique<Arena>(arena_size(options))), engine_(options, *this) {
  const PolicyInfo& policy = find_policy(options.policy);
  if (policy.simulated_only) {
    throw std::invalid_argument(
        str_cat("policy '", options.policy, "' knows the future: only a simulation can have it"));
  }
  if (policy.schedule != ScheduleKind::kNone) {
    conductor_ = std::make_unique<ScheduleConductor>(engine_, policy.schedule, options.budget);
    engine_.set_conductor(conductor_.get());
    observe(nullptr);
  }
}

Session::~Session() { abandon(); }

namespace {

// A forked child (a DataLoader's worker) goes on with the session, in its own copy of the arena;
// the lock must not be held by a thread that the child does not have.
void lock_before_fork() {
  if (Session* const session = Session::active()) {
    session->lock_for_fork();
  }
}
void unlock_in_both() {
  if (Session* const session = Session::active()) {
    session->unlock_after_fork();
  }
}

}  // namespace

void Session::enter() {
  static const int registered = pthread_atfork(&lock_before_fork, &unlock_in_both, &unlock_in_both);
  RECOUP_CHECK(registered == 0);
  Session* expected = nullptr;
  if (!active_.compare_exchange_strong(expected, this)) {
    throw std::logic_error(
        "recoup: a budget is already in force on this device; budgets cannot be nested");
  }
  {
    Suspended& suspended = Suspended::instance();
    const std::lock_guard lock(suspended.mutex);
    std::erase(suspended.sessions, this);
  }
  state_ = State::kActive;
  thread_ = std::this_thread::get_id();
  c10::SetCPUAllocator(pool_allocator(), std::numeric_limits<std::uint8_t>::max());
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, true);
}

void Session::leave() {
  if (state_ == State::kSuspended) {
    enter();
  }
  if (std::this_thread::get_id() != thread_) {
    throw std::logic_error("recoup: a budget must be left on the thread that entered it");
  }
  try {
    const Lock lock(*this);
    wait_for_replays(lock);
    engine_.set_running_op("leaving the scope");
    engine_.settle_all();
  } catch (...) {
    suspend();
    throw;
  }
  stop();
}

void Session::record(const std::string& path) {
  recording_ = std::make_unique<Recording>(path);
  observe(&recording_->recorder);
}

void Session::mark_step(std::string_view name) {
  if (!recording_ && !conductor_) {
    return;
  }
  const Lock lock(*this);
  wait_for_replays(lock);
  sweep_external();  // else a trace would not know when a tensor from outside was let go
  observers_.on_step(name);
}

std::unique_ptr<Session::Recording> Session::end_recording() {
  const Lock lock(*this);
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
  observers_ = ObserverPair(conductor_.get(), other);
  engine_.set_observer(&observers_);
}

std::vector<Decision> Session::decisions(const Lock&) const {
  return log_ ? log_->decisions() : std::vector<Decision>();
}

void Session::abandon() {
  if (in_force()) {
    stop();
  }
}

void Session::suspend() {
  if (std::this_thread::get_id() == thread_) {
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, false);
  }
  // The allocator stays: it passes all on, and its raw_deallocate is the only one that can tell
  // whose memory it is given (oneDNN asks for it long after).
  Suspended& suspended = Suspended::instance();
  const std::lock_guard lock(suspended.mutex);
  suspended.sessions.push_back(this);
  state_ = State::kSuspended;
  active_.store(nullptr, std::memory_order_release);
}

void Session::stop() {
  if (state_ == State::kActive) {
    suspend();
  }
  const Lock lock(*this);
  disown_evicted(lock);
  const std::vector<BlockView> blocks = engine_.live_blocks();
  Suspended& suspended = Suspended::instance();
  const std::lock_guard table_lock(suspended.mutex);
  retire(std::move(arena_), blocks);
  std::erase(suspended.sessions, this);
  state_ = State::kStopped;
}

// Evicted storages that outlive the session must not point to its records any more.
void Session::disown_evicted(const Lock&) {
  records_.for_each([this](RecordId, const StorageRecord& record) {
    StoragePtr storage = record.weak.lock();
    if (!storage) {
      return;
    }
    c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (data.get_deleter() == &evicted_delete) {
      data.release_context();
      storage->set_data_ptr_noswap({nullptr, c10::Device(c10::kCPU)});
    }
    graveyard_.storages.push_back(std::move(storage));
  });
}

void Session::unlock_and_bury() {
  Graveyard dead;
  std::swap(dead.payloads, graveyard_.payloads);
  std::swap(dead.storages, graveyard_.storages);
  const bool notify = waiting_ > 0;
  mutex_.unlock();
  if (notify) {
    replay_done_.notify_all();
  }
}

void Session::wait_for_replays(const Lock&) {
  if (!engine_.replaying()) {
    return;
  }
  std::unique_lock<FastMutex> held(mutex_, std::adopt_lock);
  ++waiting_;
  replay_done_.wait(held, [this] { return !engine_.replaying(); });
  --waiting_;
  held.release();
}

bool Session::in_scope(std::size_t nbytes) const {
  if (Bypass::active()) {
    return false;
  }
  if (const auto keys = c10::impl::tls_local_dispatch_key_set();
      keys.included_.has(c10::DispatchKey::Fake)) {
    return nbytes > kWrappedNumber || keys.excluded_.has(c10::DispatchKey::Fake);
  }
  // Kernels also allocate on OpenMP workers, which know nothing of the scope.
  return kernels_.load(std::memory_order_relaxed) > 0 && at::in_parallel_region();
}

c10::DataPtr Session::allocate(std::size_t nbytes) {
  if (nbytes == 0) {
    return {nullptr, c10::Device(c10::kCPU)};
  }
  try {
    const Lock lock(*this);
    const BlockId block = engine_.allocate(Bytes(static_cast<std::int64_t>(nbytes)));
    if (block.index() >= block_serials_.size()) {
      block_serials_.resize(block.index() + std::size_t{1024}, 0);
    }
    block_serials_[block.index()] = serial_;
    held_ += static_cast<std::int64_t>(nbytes);
    most_held_ = std::max(most_held_, held_);
    void* const pointer = arena_->at(engine_.offset(block));
    return {pointer, pointer, &pool_delete, c10::Device(c10::kCPU)};
  } catch (const OutOfBudget& error) {
    if (!c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake) &&
        !at::in_parallel_region()) {
      throw_out_of_budget(error.report());  // inside no op, whose handler would do it
    }
    throw PoolOutOfMemory(error.report());
  }
}

void Session::free(void* pointer) {
  const Lock lock(*this);
  const auto block = engine_.block_at(arena_->offset(pointer));
  RECOUP_CHECK(block.has_value(), "freed memory that is not allocated");
  const StorageId storage = engine_.storage_in(*block);
  if (storage.valid()) {
    storage_gone(static_cast<StorageRecord*>(engine_.handle(storage)));
    return;
  }
  held_ -= engine_.block_size(*block).count();
  engine_.free(*block);
}

void Session::evicted_storage_died(StorageRecord* record) {
  Session& session = *record->session;
  const Lock lock(session);
  session.storage_gone(record);
}

void Session::storage_gone(StorageRecord* record) {
  engine_.storage_died(record->id);
  records_.remove(record->self);
}

StorageRecord* Session::add_record(c10::StorageImpl& storage, const Lock&) {
  const RecordId id = records_.add();
  StorageRecord& record = records_[id];
  c10::raw::weak_intrusive_ptr::incref(&storage);
  record.weak = c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(&storage);
  record.impl = &storage;
  record.self = id;
  record.session = this;
  return &record;
}

void Session::rebind(StorageRecord* record, c10::StorageImpl& storage) {
  record->weak = c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr::reclaim_copy(&storage));
  record->impl = &storage;
}

BlockId Session::unowned_block(const c10::StorageImpl& storage, const Lock&) const {
  const c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  if (data.get_deleter() != &pool_delete || !owns(data.get())) {
    return {};
  }
  const auto block = engine_.block_at(arena_->offset(data.get()));
  return block && !engine_.owned(*block) ? *block : BlockId();
}

StorageId Session::find(c10::StorageImpl& storage, const Lock& lock) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (data.get_deleter() == &evicted_delete) {
    auto* const record = static_cast<StorageRecord*>(data.get_context());
    if (record->impl != &storage) {
      rebind(record, storage);  // its DataPtr was swapped into another storage
    }
    return record->id;
  }
  if (data.get() == nullptr) {
    return {};
  }
  if (data.get_deleter() == &pool_delete && owns(data.get())) {
    return find_pooled(storage, lock);
  }
  return find_external(storage, lock);
}

StorageId Session::find_known(const c10::StorageImpl& storage, const Lock&) {
  const c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  if (data.get_deleter() == &evicted_delete) {
    return static_cast<StorageRecord*>(data.get_context())->id;
  }
  if (data.get_deleter() == &pool_delete && owns(data.get())) {
    const auto block = engine_.block_at(arena_->offset(data.get()));
    return block ? engine_.storage_in(*block) : StorageId();
  }
  const StorageRecord* const record = external_record(&storage);
  return record == nullptr ? StorageId() : record->id;
}

StorageId Session::find_pooled(c10::StorageImpl& storage, const Lock& lock) {
  const PoolOffset offset = arena_->offset(storage._mutable_data_ptr_no_checks().get());
  const auto block = engine_.block_at(offset);
  RECOUP_CHECK(block.has_value());
  if (const StorageId id = engine_.storage_in(*block); id.valid()) {
    auto* const record = static_cast<StorageRecord*>(engine_.handle(id));
    if (record->impl != &storage) {
      rebind(record, storage);
    }
    return id;
  }
  // Allocated by something that was no op of ours (torch.tensor writes its bytes itself): a leaf.
  StorageRecord* const record = add_record(storage, lock);
  record->id = engine_.adopt({.block = *block,
                              .nbytes = Bytes(static_cast<std::int64_t>(storage.nbytes())),
                              .handle = record});
  return record->id;
}

StorageId Session::find_external(c10::StorageImpl& storage, const Lock& lock) {
  const void* const data = storage._mutable_data_ptr_no_checks().get();
  if (StorageRecord* const known = external_record(&storage)) {
    if (known->data == data) {
      return known->id;
    }
    // resize_ or set_ behind our back: what we knew is gone, and nothing was evicted because of it.
    erase_external(&storage);
    engine_.forsake_external(known->id);
  }
  const bool foreign = storage._mutable_data_ptr_no_checks().get_deleter() != plain_deleter;
  StorageRecord* const record = add_record(storage, lock);
  record->strong = StoragePtr::reclaim_copy(&storage);
  record->data = data;
  // Memory inside the arena that somebody wrapped (copy-on-write) is charged already.
  const Bytes charge(owns(data) ? 0 : static_cast<std::int64_t>(storage.nbytes()));
  try {
    record->id = engine_.add_external(record, charge);
  } catch (...) {
    graveyard_.storages.push_back(std::move(record->strong));
    records_.remove(record->self);
    throw;
  }
  external_.insert(reinterpret_cast<std::int64_t>(&storage), record->self);
  if (foreign) {
    engine_.escape(record->id);
  }
  return record->id;
}

// Note [Unseen writers]
// A C extension that takes tensor.data_ptr() writes where no op shows it, and what was made from
// the storage would be recomputed from the new content. So every storage that an op has read or
// made carries a materializer, a hook of StorageImpl that fires once, on the first mutable access
// outside the ops that we see. Around our kernels it is off: kernels take mutable pointers all the
// time, some of them from several threads. What `empty` makes is filled by pointer in the usual
// case, so that is no reason to distrust it ever after; but whoever filled it may come back to the
// pointer (DDP's reducer does), so it stays where it is.
namespace {

inline void arm_with(c10::StorageImpl& storage, void (*hook)(c10::StorageImpl*)) {
  const c10::DeleterFnPtr deleter = storage._mutable_data_ptr_no_checks().get_deleter();
  if ((deleter == &pool_delete || deleter == plain_deleter) && !storage.has_materializer()) {
    storage.set_materializer(hook);
  }
}

}  // namespace

void Session::arm(c10::StorageImpl& storage) { arm_with(storage, &Session::on_mutable_access); }

void Session::arm_undefined(c10::StorageImpl& storage) {
  arm_with(storage, &Session::on_definition);
}

void Session::disarm(c10::StorageImpl& storage) {
  if (!storage.has_materializer()) {
    return;
  }
  const c10::DeleterFnPtr deleter = storage._mutable_data_ptr_no_checks().get_deleter();
  if (deleter == &pool_delete || deleter == &evicted_delete || deleter == plain_deleter) {
    storage.clear_materializer();
  }
}

Session* Session::watching_accesses() {
  const bool own = at::in_parallel_region() || Bypass::active() ||
                   c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake);
  return own ? nullptr : active();
}

void Session::on_mutable_access(c10::StorageImpl* storage) {
  Session* const session = watching_accesses();
  if (session == nullptr) {
    return;
  }
  const Lock lock(*session);
  session->wait_for_replays(lock);
  const StorageId id = session->find_known(*storage, lock);
  if (!id.valid()) {
    return;
  }
  TORCH_CHECK(session->on_own_thread() || !session->engine_.has_needed_dependents(id),
              "recoup: a tensor's address was taken for writing on a thread outside the budget scope, "
              "while evicted tensors can only be recomputed from its content. Call "
              "recoup.materialize on them first, or pin it with recoup.pin");
  session->engine_.escape(id);
}

void Session::on_definition(c10::StorageImpl* storage) {
  if (Session* const session = watching_accesses()) {
    const Lock lock(*session);
    const StorageId id = session->find_known(*storage, lock);
    if (id.valid() && session->engine_.value(session->engine_.current(id)).resident()) {
      (void)session->engine_.pin(id);  // for as long as it lives
    }
  }
}

void Session::sweep_external() {
  std::vector<RecordId> dead;
  external_.for_each([&](RecordId id) {
    if (records_[id].strong.use_count() == 1) {
      dead.push_back(id);
    }
  });
  for (RecordId id : dead) {
    erase_external(records_[id].impl);
    engine_.storage_died(records_[id].id);  // calls forget, now or when lineage lets it go
  }
}

void Session::forget(void* external) noexcept {
  auto* const record = static_cast<StorageRecord*>(external);
  if (external_record(record->impl) == record) {
    erase_external(record->impl);
  }
  graveyard_.storages.push_back(std::move(record->strong));
  records_.remove(record->self);
}

}  // namespace recoup::detail
