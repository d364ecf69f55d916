#include "csrc/torch/session.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "csrc/torch/bypass.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/gpus.h"
#include "csrc/torch/kernel_frame.h"
#include "csrc/torch/owners.h"
#include "csrc/torch/sessions.h"
#include "csrc/torch/storage_access.h"
#include "csrc/torch/traits_table.h"
#include "recoup/torch.h"

namespace recoup::detail {
namespace {

// Numbers that the argument parser wraps into tensors are allocated outside of any kernel, one an
// op.
constexpr std::size_t kWrappedNumber = 16;

// The budget may grow, up to the machine's memory; addresses cost nothing.
Bytes arena_size(const Options& options) { return std::max(options.budget, physical_memory()); }

// Any suite of tests can be run under them, as it is.
TestAids aids_on(const Gpu* gpu, TestAids aids) {
  if (const char* const wanted = std::getenv("RECOUP_TEST_AIDS");
      wanted != nullptr && *wanted != '\0') {
    aids = parse_test_aids(wanted);
  }
  if (gpu != nullptr && aids.poison) {
    throw std::invalid_argument("the test aid 'poison' is for budgets of the CPU's memory");
  }
  return aids;
}

Options options_on(const Gpu* gpu, Options options) {
  options.aids = aids_on(gpu, options.aids);
  if (gpu != nullptr && options.budget > Bytes(0)) {
    options.budget = gpu->budget(options.budget);
    options.outside = gpu->outside();
    options.alignment = Bytes(512);  // what kernels expect of PyTorch's own allocator
  }
  return options;
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

// Of a budget, for moves that overlap themselves.
Bytes bounce_size(Bytes budget) {
  constexpr std::int64_t kPart = 256;
  constexpr Bytes kMost(4 << 20);
  return std::min(Bytes(budget.count() / kPart / 512 * 512 + 512), kMost);
}

}  // namespace

Session::Session(const Options& options, c10::Device device)
    : number_(next_number()),
      delay_us_(aids_on(nullptr, options.aids).delay),
      device_(device),
      gpu_(device.is_cpu() ? nullptr : std::make_unique<Gpu>(device)),
      deleter_(gpu_ ? &gpu_delete : &pool_delete),
      program_deleter_(gpu_ ? gpu_->program_deleter() : plain_allocator()->raw_deleter()),
      engine_(options_on(gpu_.get(), options), *this) {
  const PolicyInfo& policy = find_policy(options.policy);
  if (policy.simulated_only) {
    throw std::invalid_argument(
        str_cat("policy '", options.policy, "' knows the future: only a simulation can have it"));
  }
  if (gpu_) {
    arena_ = gpu_->make_arena(engine_.options().budget - engine_.options().outside);
    scope_ = std::make_shared<SessionScope>(*this, *arena_);
    bounce_ = engine_.allocate(bounce_size(engine_.options().budget));
    gpu_->set_bounce(arena_->at(engine_.pool().offset(bounce_)), engine_.pool().size(bounce_));
    publish_use(Lock(*this));
  } else {
    arena_ = std::make_unique<HostArena>(arena_size(options));
  }
  if (policy.schedule != ScheduleKind::kNone) {
    runner_ = std::make_unique<ScheduleRunner>(engine_, policy.schedule, engine_.options().budget);
    engine_.set_schedule(runner_.get());
    observe(nullptr);
  }
}

Session::~Session() { (void)abandon(); }

void Session::wait_at_random() const {
  thread_local std::minstd_rand random(
      static_cast<std::uint32_t>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  std::this_thread::sleep_for(std::chrono::microseconds(
      static_cast<std::int64_t>(random()) % (2 * delay_us_) - delay_us_));  // half of them: none
}

namespace {

// A forked child (a DataLoader's worker) goes on with the sessions, in its own copy of the arenas;
// the locks must not be held by a thread that the child does not have.
void lock_before_fork() {
  lock_generator_for_fork();
  Visit::begin();
  Sessions::for_each([](Session& session) { session.lock_for_fork(); });
}
void unlock_sessions() {
  Sessions::for_each([](Session& session) { session.unlock_after_fork(); });
  Visit::end();
}
void unlock_in_parent() {
  unlock_sessions();
  unlock_generator_in_parent();
}
void unlock_in_child() {
  Visit::forget_others();
  Sessions::for_each([](Session& session) { session.forget_turn(); });
  unlock_sessions();
  renew_generator_in_child();
}

}  // namespace

void Session::enter() {
  static const int registered =
      pthread_atfork(&lock_before_fork, &unlock_in_parent, &unlock_in_child);
  RECOUP_CHECK(registered == 0);
  if (!Sessions::any()) {
    TraitsTable::instance().look_for_overrides();
  }
  if (!Sessions::enter(*this)) {
    throw std::logic_error(str_cat("recoup: a budget is already in force on ", device_.str(),
                                   "; budgets cannot be nested"));
  }
  Sessions::end_suspended(*this);
  state_ = State::kActive;
  thread_ = std::this_thread::get_id();
  Visit::begin_uncounted();  // until it is suspended
  if (gpu_) {
    gpu_allocator().enter(device_.index(), scope_);
  } else {
    c10::SetCPUAllocator(pool_allocator(), std::numeric_limits<std::uint8_t>::max());
  }
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, true);
}

bool Session::on_own_thread() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake);
}

void Session::leave() {
  if (state_ == State::kSuspended) {
    enter();
  }
  if (std::this_thread::get_id() != thread_) {
    throw std::logic_error("recoup: a budget must be left on the thread that entered it");
  }
  try {
    settle();
    delay();
    while (!stop_if_materialized()) {
      settle();
      delay();
    }
  } catch (...) {
    if (gpu_) {
      gpu_->wait_for_all();
    }
    // Other threads that carry the scope end their op first: the next one is unseen.
    while_nobody_visits([this](const Lock&) {
      suspend();
      tell_evicted(suspended_message());
    });
    throw;
  }
}

template <class Act>
void Session::while_nobody_visits(Act&& act) {
  Graveyard dead;
  const Closing nobody_else;
  const Lock lock(*this);
  act(lock);
  std::swap(dead, graveyard_);
}

void Session::settle() {
  const Lock lock(*this);
  const Turn turn(*this, lock);
  if (gpu_) {
    gpu_->require_ready();
  }
  engine_.set_running_op("leaving the scope");
  engine_.materialize_all();
  if (gpu_) {
    gpu_->wait_for_all();
  }
}

// Other threads that carry the scope may have made something since it was settled.
bool Session::stop_if_materialized() {
  while_nobody_visits([this](const Lock& lock) {
    if (engine_.materialized()) {
      stop(lock);
    }
  });
  return !in_force();
}

void Session::record(const std::string& path) {
  recording_ = std::make_unique<Recording>(path);
  observe(&recording_->recorder);
}

void Session::mark_step(std::string_view name) {
  if (!recording_ && !runner_) {
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
  observers_ = ObserverPair(runner_.get(), other);
  engine_.set_observer(&observers_);
}

std::vector<Decision> Session::decisions(const Lock&) const {
  return log_ ? log_->decisions() : std::vector<Decision>();
}

bool Session::abandon() {
  if (!in_force()) {
    return true;
  }
  if (state_ == State::kActive && std::this_thread::get_id() != thread_) {
    suspend();
    return false;
  }
  while_nobody_visits([this](const Lock& lock) { stop(lock); });
  return true;
}

void Session::suspend() {
  Sessions::leave(*this);
  if (std::this_thread::get_id() == thread_) {
    Visit::end_uncounted();
  }
  bool another = false;  // on this thread
  Sessions::for_each([&](const Session& session) { another |= session.thread_ == thread_; });
  if (std::this_thread::get_id() == thread_ && !another) {
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, false);
  }
  if (gpu_) {
    gpu_allocator().leave(device_.index());
  }
  // The CPU's allocator stays: it passes all on, and its raw_deallocate is the only one that can
  // tell whose memory it is given (oneDNN asks for it long after).
  Sessions::suspend(*this);
  state_ = State::kSuspended;
}

// Storages that are evicted say this from now on.
void Session::tell_evicted(const std::string& message) {
  records_.for_each([&](RecordId, const StorageRecord& record) {
    if (StoragePtr storage = evicted_storage(record)) {
      storage->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
      graveyard_.storages.push_back(std::move(storage));
    }
  });
}

// Null when it has bytes, or is dying. One that Python has an object of has bytes: to lock it here
// could wait for the interpreter, whose holder may wait for us.
StoragePtr Session::evicted_storage(const StorageRecord& record) {
  return record.impl->_mutable_data_ptr_no_checks().get_deleter() == &evicted_delete
             ? record.weak.lock()
             : StoragePtr();
}

const std::string& Session::evicted_message() const {
  return state_ == State::kSuspended ? suspended_message() : detail::evicted_message();
}

// In a Closing: nobody looks for the session, or its memory, until it is over.
void Session::stop(const Lock& lock) {
  if (state_ == State::kActive) {
    suspend();
  }
  if (gpu_) {
    scope_->close();
  }
  disown_evicted(lock);
  if (gpu_) {
    engine_.free(bounce_);
  }
  const std::vector<BlockView> blocks = engine_.pool().taken();
  Sessions::end_suspended(*this);
  if (gpu_) {
    scope_->retire(std::move(arena_), blocks);
    gpu_allocator().leave(device_.index());  // again: now it may be empty
  } else {
    retire(std::move(arena_), blocks);
  }
  state_ = State::kStopped;
}

// Evicted storages that outlive the session must not point to its records any more.
void Session::disown_evicted(const Lock&) {
  records_.for_each([this](RecordId, const StorageRecord& record) {
    if (StoragePtr storage = evicted_storage(record)) {
      storage->_mutable_data_ptr_no_checks().release_context();
      storage->set_data_ptr_noswap(no_bytes());
      storage->release_data_and_set_meta_custom_data_ptr_error_msg_(lost_message());
      graveyard_.storages.push_back(std::move(storage));
    }
  });
}

// What dies may need the GIL, for which nobody waits who holds a generator, or whom a kernel that
// holds one waits for: it is left to the next one. Note [The generator's gate]
void Session::unlock_and_bury() {
  Graveyard dead;
  if (!GeneratorLock::held_by_this_thread() && !at::in_parallel_region()) {
    std::swap(dead.payloads, graveyard_.payloads);
    std::swap(dead.storages, graveyard_.storages);
  }
  const bool notify = waiting_ > 0;
  mutex_.unlock();
  if (notify) {
    changed_.notify_all();
  }
}

void Session::wait_for_replays(const Lock& lock) {
  if (engine_.replaying()) {
    wait_until(lock, [this] { return !engine_.replaying(); });
  }
}

void Session::begin_turn(const Lock& lock) {
  const std::thread::id self = std::this_thread::get_id();
  const auto free = [&] { return (turn_depth_ == 0 || turn_ == self) && !engine_.replaying(); };
  if (!free()) [[unlikely]] {
    wait_until(lock, free);
  }
  turn_ = self;
  ++turn_depth_;
}

bool Session::in_scope(std::size_t nbytes) const {
  if (Bypass::active()) {
    return false;
  }
  if (const auto keys = c10::impl::tls_local_dispatch_key_set();
      keys.included_.has(c10::DispatchKey::Fake)) {
    return on_gpu() || nbytes > kWrappedNumber || keys.excluded_.has(c10::DispatchKey::Fake);
  }
  // Kernels also allocate on OpenMP workers, which know nothing of the scope.
  return kernels_.load(std::memory_order_relaxed) > 0 && at::in_parallel_region();
}

BlockId Session::take_block(std::size_t nbytes, const Lock&) {
  const BlockId block = engine_.allocate(Bytes(static_cast<std::int64_t>(nbytes)));
  if (block.index() >= block_serials_.size()) {
    block_serials_.resize(block.index() + std::size_t{1024}, 0);
  }
  block_serials_[block.index()] = serial_;
  held_ += static_cast<std::int64_t>(nbytes);
  most_held_ = std::max(most_held_, held_);
  return block;
}

void Session::throw_no_room(const OutOfBudget& error) const {
  if (!c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake) &&
      !at::in_parallel_region()) {
    throw_out_of_budget(error.report());  // inside no op, whose handler would do it
  }
  if (gpu_) {
    throw KernelOutOfMemory(error.report(), this);
  }
  throw PoolOutOfMemory(error.report(), this);
}

c10::DataPtr Session::allocate(std::size_t nbytes) {
  if (nbytes == 0) {
    return no_bytes();
  }
  void* const pointer = allocate_in_turns([&](const Lock& lock) {
    return arena_->at(engine_.pool().offset(take_block(nbytes, lock)));
  });
  return {pointer, pointer, deleter_, device_};
}

// What the engine lets go dies when its lock is given up, and memory of the pool with it: a slice
// of a storage is a storage from outside that holds one of ours. Then it is tried once more.
template <class Take>
void* Session::allocate_in_turns(Take&& take) {
  delay();
  for (bool again = true;; again = false) {
    Bytes charged{0};
    try {
      const Lock lock(*this);
      try {
        return take(lock);
      } catch (const OutOfBudget&) {
        charged = engine_.charged();
        throw;
      }
    } catch (const OutOfBudget& error) {
      const Lock lock(*this);
      if (!again || engine_.charged() >= charged) {
        throw_no_room(error);
      }
    }
  }
}

void* Session::allocate(std::size_t nbytes, cuda::Stream stream) {
  return allocate_in_turns([&](const Lock& lock) {
    const BlockId block = take_block(nbytes, lock);
    void* const pointer = arena_->at(engine_.pool().offset(block));
    publish_use(lock);
    try {
      gpu_->take(pointer, engine_.pool().size(block), stream);
    } catch (...) {
      held_ -= engine_.pool().size(block).count();
      engine_.free(block);
      throw;
    }
    return pointer;
  });
}

void Session::publish_use(const Lock&) {
  used_ = (engine_.charged() - engine_.options().outside).count();
  reserved_ = arena_->backed().count();
}

void Session::record_stream(void* pointer, cuda::Stream stream) {
  const Lock lock(*this);
  const auto block = engine_.pool().find(arena_->offset(pointer));
  RECOUP_CHECK(block.has_value(), "record_stream of memory that is not allocated");
  gpu_->use(pointer, engine_.pool().size(*block), stream);
}

void Session::grow(Bytes budget) {
  const Lock lock(*this);
  if (gpu_) {
    budget = gpu_->budget(budget);
    gpu_->back(*arena_, budget - engine_.options().outside);
    publish_use(lock);
  }
  engine_.grow(budget);
}

void Session::shrink(Bytes budget) {
  const Lock lock(*this);
  if (gpu_) {
    throw std::invalid_argument("recoup: a budget on a GPU cannot be made smaller");
  }
  wait_for_replays(lock);
  engine_.set_running_op("shrinking the budget");
  try {
    engine_.shrink(budget);
  } catch (...) {
    engine_.set_running_op({});
    throw;
  }
  engine_.set_running_op({});
}

void Session::free(void* pointer) {
  delay();
  const Lock lock(*this);
  const auto block = engine_.pool().find(arena_->offset(pointer));
  RECOUP_CHECK(block.has_value(), "freed memory that is not allocated");
  const StorageId storage = engine_.storage_in(*block);
  if (storage.valid()) {
    storage_gone(static_cast<StorageRecord*>(engine_.handle(storage)));
  } else {
    held_ -= engine_.pool().size(*block).count();
    engine_.free(*block);
  }
  if (gpu_) {
    publish_use(lock);
  }
}

void Session::evicted_storage_died(void* context) {
  const Visit visit;
  Session* const session = Sessions::numbered(session_in(context));
  if (session == nullptr) {
    return;  // it stopped while the storage was dying
  }
  const Lock lock(*session);
  session->storage_gone(&session->records_[record_in(context)]);
}

Session* Session::owner_of_evicted(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  return data.get_deleter() == &evicted_delete ? Sessions::numbered(session_in(data.get_context()))
                                               : nullptr;
}

void* Session::context_of(const StorageRecord& record) const {
  return reinterpret_cast<void*>((std::uintptr_t{number_} << 32) | record.self.index());
}

RecordId Session::record_in(const void* context) {
  return RecordId(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context)));
}

std::uint32_t Session::session_in(const void* context) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context) >> 32);
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
  return &record;
}

void Session::rebind(StorageRecord* record, c10::StorageImpl& storage) {
  record->weak = c10::weak_intrusive_ptr<c10::StorageImpl>(StoragePtr::reclaim_copy(&storage));
  record->impl = &storage;
}

BlockId Session::unowned_block(const c10::StorageImpl& storage, const Lock&) const {
  const c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  if (!in_pool(data)) {
    return {};
  }
  const auto block = engine_.pool().find(arena_->offset(data.get()));
  return block && !engine_.pool().owner(*block).valid() ? *block : BlockId();
}

StorageId Session::find(c10::StorageImpl& storage, const Lock& lock) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (data.get_deleter() == &evicted_delete) {
    auto* const record = &records_[record_in(data.get_context())];
    if (record->impl != &storage) {
      rebind(record, storage);  // its DataPtr was swapped into another storage
    }
    return record->id;
  }
  if (data.get() == nullptr) {
    return {};
  }
  if (in_pool(data)) {
    return find_pooled(storage, lock);
  }
  return find_external(storage, lock);
}

StorageId Session::find_known(const c10::StorageImpl& storage, const Lock&) {
  const c10::DataPtr& data = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  if (data.get_deleter() == &evicted_delete) {
    return records_[record_in(data.get_context())].id;
  }
  if (in_pool(data)) {
    const auto block = engine_.pool().find(arena_->offset(data.get()));
    return block ? engine_.storage_in(*block) : StorageId();
  }
  StorageRecord* const record = external_record(&storage);
  return record == nullptr ? StorageId() : id_of(*record);
}

// Note [Let go, and found again]
// That nobody but us holds an external storage does not mean that nobody will: weak references (of
// torch.multiprocessing's cache, for one) find what lineage keeps. Then it is the program's again,
// under a new id, with all that depends on its content.
StorageId Session::id_of(StorageRecord& external) {
  if (!external.id.valid()) {
    external.id = engine_.revive_external(std::exchange(external.let_go, ValueId()));
  }
  return external.id;
}

StorageId Session::reserve(Bytes size, const Lock& lock) {
  auto nothing = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       no_bytes(), nullptr, false);
  StorageRecord* const record = add_record(*nothing, lock);
  record->strong = std::move(nothing);
  try {
    record->id = engine_.add_external(record, size);
  } catch (...) {
    graveyard_.storages.push_back(std::move(record->strong));
    records_.remove(record->self);
    throw;
  }
  return record->id;
}

StorageId Session::find_pooled(c10::StorageImpl& storage, const Lock& lock) {
  const PoolOffset offset = arena_->offset(storage._mutable_data_ptr_no_checks().get());
  const auto block = engine_.pool().find(offset);
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
    const StorageId id = id_of(*known);
    if (known->data == data) {
      return id;
    }
    // resize_ or set_ behind our back: what we knew is gone, and nothing was evicted because of it.
    erase_external(&storage);
    engine_.forsake_external(id);
  }
  const c10::DeleterFnPtr deleter = storage._mutable_data_ptr_no_checks().get_deleter();
  // Not ours, nor from an earlier scope.
  const bool foreign = deleter != program_deleter_ && deleter != deleter_;
  StorageRecord* const record = add_record(storage, lock);
  record->strong = StoragePtr::reclaim_copy(&storage);
  record->data = data;
  // Memory inside the arena that somebody wrapped (copy-on-write) is charged already.
  const Bytes size(owns(data) ? 0 : static_cast<std::int64_t>(storage.nbytes()));
  const bool counted = gpu_ && gpu_allocator().owns(data);
  try {
    record->id = engine_.add_external(
        record, size, counted ? Engine::Charge::kAmongOutside : Engine::Charge::kNow);
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
inline void Session::arm_with(c10::StorageImpl& storage, void (*hook)(c10::StorageImpl*)) const {
  const c10::DeleterFnPtr deleter = storage._mutable_data_ptr_no_checks().get_deleter();
  if ((deleter == deleter_ || deleter == program_deleter_) && !has_access_hook(storage)) {
    set_access_hook(storage, hook);
  }
}

void Session::arm(c10::StorageImpl& storage) const {
  arm_with(storage, &Session::on_mutable_access);
}

void Session::arm_undefined(c10::StorageImpl& storage) const {
  arm_with(storage, &Session::on_definition);
}

void Session::disarm(c10::StorageImpl& storage) const {
  if (!has_access_hook(storage)) {
    return;
  }
  const c10::DeleterFnPtr deleter = storage._mutable_data_ptr_no_checks().get_deleter();
  if (deleter == deleter_ || deleter == &evicted_delete || deleter == program_deleter_) {
    clear_access_hook(storage);
  }
}

void Session::hold(const at::Tensor& tensor, KernelFrame& frame) {
  c10::StorageImpl* const storage = managed(tensor.storage());
  if (storage == nullptr) {
    return;
  }
  const Lock lock(*this);
  const Turn turn(*this, lock);
  if (const StorageId id = find(*storage, lock); id.valid()) {
    frame.hold(*this, id, /*trusted=*/false, lock);
  }
}

void Session::let_go(const PinTicket& pin, const Lock&) {
  if (engine_.values().holds(pin)) {
    arm(*static_cast<StorageRecord*>(engine_.handle(pin.storage))->impl);
    engine_.unpin(pin);
  }
}

Session* Session::watching_accesses(const c10::StorageImpl& storage) {
  const bool own = at::in_parallel_region() || Bypass::active() ||
                   c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake);
  return own ? nullptr : Sessions::on(storage.device());
}

void Session::on_mutable_access(c10::StorageImpl* storage) {
  const Visit visit;
  Session* const session = watching_accesses(*storage);
  if (session == nullptr) {
    return;
  }
  const Lock lock(*session);
  session->wait_for_replays(lock);
  const StorageId id = session->find_known(*storage, lock);
  if (!id.valid() || KernelFrame::trusts(*session, id, lock)) {
    return;
  }
  TORCH_CHECK(on_own_thread() || !session->engine_.has_needed_dependents(id),
              "recoup: a tensor's address was taken for writing on a thread outside the budget scope, "
              "while evicted tensors can only be recomputed from its content. Call "
              "recoup.materialize on them first, or pin it with recoup.pin");
  session->engine_.escape(id);
}

void Session::on_definition(c10::StorageImpl* storage) {
  const Visit visit;
  if (Session* const session = watching_accesses(*storage)) {
    const Lock lock(*session);
    const StorageId id = session->find_known(*storage, lock);
    if (id.valid() && KernelFrame::trusts(*session, id, lock)) {
      return;  // the pin of its frame does
    }
    if (id.valid() && session->engine_.value(session->engine_.current(id)).resident()) {
      (void)session->engine_.pin(id);  // for as long as it lives
    }
  }
}

void Session::sweep_external() {
  std::vector<RecordId> dead;
  external_.for_each([&](RecordId id) {
    if (records_[id].id.valid() && is_sole_owner(records_[id].strong)) {
      dead.push_back(id);
    }
  });
  for (RecordId id : dead) {
    StorageRecord& record = records_[id];
    const StorageId storage = std::exchange(record.id, StorageId());
    record.let_go = engine_.current(storage);
    engine_.storage_died(storage);  // calls forget, now or when lineage lets it go
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
