// Session: one engine at work on one device of this process, and the lock around it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "csrc/base/fast_mutex.h"
#include "csrc/base/flat_map.h"
#include "csrc/base/slab.h"
#include "csrc/engine/decisions.h"
#include "csrc/engine/engine.h"
#include "csrc/engine/observer_pair.h"
#include "csrc/schedule/runner.h"
#include "csrc/torch/arena.h"
#include "csrc/torch/gpu.h"
#include "csrc/torch/interpreter.h"
#include "csrc/torch/payload.h"
#include "csrc/torch/session_scope.h"
#include "csrc/trace/recorder.h"
#include "csrc/trace/writer.h"

namespace recoup::detail {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;
using RecordId = Id<struct RecordTag>;

// One storage that the engine knows; the engine's "handle". Pool storages are held weakly (their
// deleter says when they die); external ones strongly, since lineage may need their bytes after the
// program let them go.
struct StorageRecord {
  c10::weak_intrusive_ptr<c10::StorageImpl> weak{StoragePtr()};
  StoragePtr strong;  // external only
  ValueId let_go;  // external only: what it held when the program let it go; then `id` is of none
  c10::StorageImpl* impl = nullptr;
  const void* data = nullptr;  // external only: where its bytes were when they were charged
  StorageId id;
  RecordId self;
};

class Session final : private Device {
 public:
  class Lock;

  // Throws std::invalid_argument for options that no session can have, std::runtime_error for a
  // device on which there can be none.
  Session(const Options& options, c10::Device device);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] c10::Device device() const { return device_; }
  // Null on the CPU.
  [[nodiscard]] Gpu* gpu(const Lock&) const { return gpu_.get(); }
  [[nodiscard]] bool on_gpu() const { return gpu_ != nullptr; }
  // The storage, if it is one whose bytes the session manages; else null.
  [[nodiscard]] c10::StorageImpl* managed(const c10::Storage& storage) const {
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    return impl == nullptr || !manages(*impl) || impl->sym_nbytes().is_heap_allocated() ? nullptr
                                                                                        : impl;
  }
  // Whether the tensor's bytes are, or would be, on its device.
  [[nodiscard]] bool manages(const c10::TensorImpl& tensor) const {
    return tensor.device_type() == device_.type() &&
           (!on_gpu() || tensor.device().index() == device_.index());
  }
  [[nodiscard]] bool manages(const c10::StorageImpl& storage) const {
    return storage.device_type() == device_.type() &&
           (!on_gpu() || storage.device().index() == device_.index());
  }

  // Both on the same thread. `enter` throws std::logic_error when a session is active.
  void enter();
  // Makes every live tensor resident and stops. Throws OutOfBudget; then the session is suspended:
  // it sees no more ops, and what is evicted says so when it is touched. After grow, leave may be
  // tried again.
  void leave();
  // Stops as it is: what is evicted stays so for ever. False, and it is suspended only, when that
  // is asked of another thread than the one whose scope it is: that one may be in an op, so the
  // session must not be destroyed.
  [[nodiscard]] bool abandon();
  // Whether this thread is of the scope, and so may replay: the one that entered, those that carry
  // it, and those that autograd runs its backward on, which are others for each GPU.
  [[nodiscard]] static bool on_own_thread();
  [[nodiscard]] bool in_force() const { return state_ != State::kStopped; }
  // Tells it from all others of the process.
  [[nodiscard]] std::uint32_t number() const { return number_; }

  // Holds the engine's lock; what died under it is destroyed after it is given up, because
  // destroying it may come back to us.
  class Lock {
   public:
    explicit Lock(Session& session) : session_(session) { session.mutex_.lock(); }
    ~Lock() {
      if (session_.graveyard_.empty() && session_.waiting_ == 0) [[likely]] {
        session_.mutex_.unlock();
      } else {
        session_.unlock_and_bury();
      }
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Session& session_;
  };
  // To be called before anything that may replay: waits until no other thread is replaying.
  void wait_for_replays(const Lock&);
  // Around an op, its kernel included: waits until no other thread of the scope is in one, for the
  // engine knows one running op. An op within an op's kernel is the same turn.
  void begin_turn(const Lock& lock);
  void end_turn(const Lock&) { --turn_depth_; }  // who waits is told when the lock is given up
  // The same for a block of code.
  class Turn {
   public:
    Turn(Session& session, const Lock& lock) : session_(session), lock_(lock) {
      session.begin_turn(lock);
    }
    ~Turn() {
      if (!goes_on_) {
        session_.end_turn(lock_);
      }
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // Beyond the block, until somebody calls end_turn.
    void go_on() { goes_on_ = true; }

   private:
    Session& session_;
    const Lock& lock_;
    bool goes_on_ = false;
  };
  // In the child of a fork, which has no other thread.
  void forget_turn() { turn_depth_ = turn_ == std::this_thread::get_id() ? turn_depth_ : 0; }

  Engine& engine(const Lock&) { return engine_; }
  [[nodiscard]] const Engine& engine(const Lock&) const { return engine_; }
  // Brings a plain tensor's bytes back, for a frame that holds them from now on. Throws
  // OutOfBudget.
  void hold(const at::Tensor& tensor, class KernelFrame& frame);
  // Ends a pin of a kernel's frame: the storage is watched again.
  void let_go(const PinTicket& pin, const Lock&);

  // The storage of a tensor; registers it when it is new. Invalid for storages without bytes.
  // Throws OutOfBudget when it was made outside and there is no room to charge it.
  StorageId find(c10::StorageImpl& storage, const Lock& lock);
  // The same, but registers nothing.
  StorageId find_known(const c10::StorageImpl& storage, const Lock& lock);
  // Note [Unseen writers]: an armed storage tells when somebody takes its address to write to it.
  void arm(c10::StorageImpl& storage) const;
  // For one whose bytes nobody has defined yet: it is only pinned when that happens.
  void arm_undefined(c10::StorageImpl& storage) const;
  void disarm(c10::StorageImpl& storage) const;
  // Somebody did: the storage escapes.
  static void on_mutable_access(c10::StorageImpl* storage);
  static void on_definition(c10::StorageImpl* storage);
  // The kernel-held block that a storage lives in; invalid when it is none of ours or has an owner.
  [[nodiscard]] BlockId unowned_block(const c10::StorageImpl& storage, const Lock&) const;
  // When that block was allocated.
  [[nodiscard]] std::uint64_t serial(BlockId block, const Lock&) const {
    return block_serials_[block.index()];
  }
  std::uint64_t next_serial(const Lock&) { return ++serial_; }
  // A record for a storage that is about to be adopted.
  StorageRecord* add_record(c10::StorageImpl& storage, const Lock&);

  [[nodiscard]] bool verifies(const Lock&) const { return engine_.options().verify; }

  // For a kernel, on the CPU; and on a GPU, for work on a stream.
  c10::DataPtr allocate(std::size_t nbytes);
  void* allocate(std::size_t nbytes, cuda::Stream stream);
  void free(void* pointer);
  void record_stream(void* pointer, cuda::Stream stream);
  // Charges bytes that are about to be made outside of the pool, and makes room for them; it stands
  // for them until release_reserved. Throws OutOfBudget.
  StorageId reserve(Bytes size, const Lock& lock);
  void release_reserved(StorageId reserved, const Lock&) { engine_.storage_died(reserved); }
  // Memory of the pool for what is kept while a kernel runs. Throws OutOfBudget.
  void* allocate_aside(Bytes size, const Lock&) {
    return arena_->at(engine_.pool().offset(engine_.allocate(size)));
  }
  void free_aside(const void* memory, const Lock&) {
    engine_.free(*engine_.pool().find(arena_->offset(memory)));
  }
  // What touching a tensor of this session says, that is evicted.
  [[nodiscard]] const std::string& evicted_message() const;

  // Bytes of the pool that are in use, and that have memory; any thread, without the lock.
  [[nodiscard]] Bytes used() const { return Bytes(used_.load(std::memory_order_relaxed)); }
  [[nodiscard]] Bytes reserved() const { return Bytes(reserved_.load(std::memory_order_relaxed)); }
  // As Budget::grow, and Budget::shrink.
  void grow(Bytes budget);
  void shrink(Bytes budget);
  // Of an evicted storage; `context` is its DataPtr's.
  static void evicted_storage_died(void* context);
  // The session that an evicted storage is of, at work or suspended; null for others. In a Visit.
  [[nodiscard]] static Session* owner_of_evicted(const c10::StorageImpl& storage);
  [[nodiscard]] bool owns(const void* pointer) const { return arena_->contains(pointer); }

  // Before the session is entered, one of them: writes down what the program does, as a trace, or
  // what the engine decides.
  void record(const std::string& path);
  void log_decisions();
  struct Recording {
    explicit Recording(const std::string& path) : writer(path), recorder(writer) {}
    TraceWriter writer;
    TraceRecorder recorder;
  };
  [[nodiscard]] bool recording() const { return recording_ != nullptr; }
  // A training step ends here, says the trace, if one is recorded.
  void mark_step(std::string_view name);
  // Null when none was recorded. Its writer is not closed yet.
  std::unique_ptr<Recording> end_recording();
  // Empty unless log_decisions was called.
  [[nodiscard]] std::vector<Decision> decisions(const Lock&) const;

  std::unique_ptr<Payload> new_payload(const c10::OperatorHandle& op, const Lock&);
  void discard(std::unique_ptr<Payload> payload, const Lock&) { release(payload.release()); }

  // Kernels running now, and the most bytes that they held since `reset_held`.
  void kernel_started(const Lock&) { count_kernels(1); }
  void kernel_ended(const Lock&) { count_kernels(-1); }
  void reset_held(const Lock&) { most_held_ = held_ = 0; }
  [[nodiscard]] Bytes most_held(const Lock&) const { return Bytes(most_held_); }
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  // Whether an allocation of this thread belongs to the session's program.
  [[nodiscard]] bool in_scope(std::size_t nbytes) const;
  // A test aid: waits for a random time.
  void delay() const {
    if (delay_us_ > 0) [[unlikely]] {
      wait_at_random();
    }
  }

 private:
  // Device.
  void replay(void* payload, std::span<const Location> inputs, std::span<const PoolOffset> written,
              std::span<BlockId> outputs) override;
  void release(void* payload) noexcept override;
  [[nodiscard]] std::size_t payload_bytes(const void* payload) const noexcept override;
  void attach(void* handle, PoolOffset offset) noexcept override;
  [[nodiscard]] bool detach(void* handle, PoolOffset offset) noexcept override;
  void forget(void* external) noexcept override;
  void copy(PoolOffset to, const Location& from, Bytes size) override;
  void poison(PoolOffset at, Bytes size) noexcept override;
  [[nodiscard]] std::optional<double> copy_ns_per_byte() const override;
  [[nodiscard]] PageSizes page_sizes() const override;
  void discard(PoolOffset from, PoolOffset to) noexcept override;
  std::uint64_t hash(const Location& from, Bytes size, const void* payload,
                     std::size_t result) override;
  [[nodiscard]] std::string name(const void* payload) const override;
  void sweep_external() override;

  [[nodiscard]] void* address(const Location& location) const;
  BlockId take_block(std::size_t nbytes, const Lock&);
  template <class Take>
  void* allocate_in_turns(Take&& take);
  void publish_use(const Lock&);
  [[noreturn]] void throw_no_room(const OutOfBudget& error) const;
  [[nodiscard]] c10::DataPtr no_bytes() const { return {nullptr, device_}; }
  // Whether the bytes are in a block of the pool, and nobody else's.
  [[nodiscard]] bool in_pool(const c10::DataPtr& data) const {
    const c10::DeleterFnPtr deleter = data.get_deleter();
    return (deleter == deleter_ || deleter == program_deleter_) && owns(data.get());
  }
  void arm_with(c10::StorageImpl& storage, void (*hook)(c10::StorageImpl*)) const;
  StorageId find_pooled(c10::StorageImpl& storage, const Lock& lock);
  StorageId find_external(c10::StorageImpl& storage, const Lock& lock);
  StorageId id_of(StorageRecord& external);
  void tell_evicted(const std::string& message);
  [[nodiscard]] static StoragePtr evicted_storage(const StorageRecord& record);
  void order_replay(const StoragePtr& storage, bool external);
  void take_fresh(const Payload& payload, torch::jit::Stack& stack, std::span<BlockId> outputs);
  // The lock makes one atomic step of it, at no cost of its own.
  void count_kernels(int change) {
    kernels_.store(kernels_.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }
  void unlock_and_bury();
  void wait_at_random() const;
  void storage_gone(StorageRecord* record);
  [[nodiscard]] StorageRecord* external_record(const c10::StorageImpl* storage) const {
    const RecordId id = external_.get(reinterpret_cast<std::int64_t>(storage));
    return id.valid() ? const_cast<StorageRecord*>(&records_[id]) : nullptr;
  }
  void erase_external(const c10::StorageImpl* storage) {
    external_.erase(reinterpret_cast<std::int64_t>(storage));
  }
  void observe(Observer* other);  // beside the schedule's runner; may be null
  void rebind(StorageRecord* record, c10::StorageImpl& storage);
  // The session of the storage's device, when the access is not by one of its own kernels.
  static Session* watching_accesses(const c10::StorageImpl& storage);
  void settle();
  [[nodiscard]] bool stop_if_materialized();
  void suspend();
  // Calls act(lock) in a Closing; what dies of it is buried behind that.
  template <class Act>
  void while_nobody_visits(Act&& act);
  void stop(const Lock& lock);
  void disown_evicted(const Lock&);
  template <class Done>
  void wait_until(const Lock&, Done&& done) {
    std::unique_lock<FastMutex> held(mutex_, std::adopt_lock);
    ++waiting_;
    while (!done()) {
      held.unlock();
      {
        const WithoutInterpreter waiting;
        held.lock();
        if (!done()) {
          changed_.wait(held);
        }
        held.unlock();
      }
      held.lock();
    }
    --waiting_;
    held.release();
  }
  // What an evicted storage has in the place of its bytes: numbers, for it may die while its
  // session stops, and then nothing that it points to would be there.
  [[nodiscard]] void* context_of(const StorageRecord& record) const;
  [[nodiscard]] static RecordId record_in(const void* context);
  [[nodiscard]] static std::uint32_t session_in(const void* context);

  enum class State : std::uint8_t { kStopped, kActive, kSuspended };

  State state_ = State::kStopped;
  const std::uint32_t number_;
  const std::int64_t delay_us_;  // TestAids::delay

  c10::Device device_;
  std::unique_ptr<Gpu> gpu_;
  c10::DeleterFnPtr deleter_;          // of bytes that the engine has given
  c10::DeleterFnPtr program_deleter_;  // of what the program allocates on the device
  std::unique_ptr<Arena> arena_;
  std::shared_ptr<SessionScope> scope_;  // of a GPU
  FastMutex mutex_;
  std::condition_variable_any changed_;
  int waiting_ = 0;
  std::thread::id turn_;  // who is in an op
  int turn_depth_ = 0;
  struct Graveyard {
    std::vector<std::unique_ptr<Payload>> payloads;
    std::vector<StoragePtr> storages;
    [[nodiscard]] bool empty() const { return payloads.empty() && storages.empty(); }
  };
  Graveyard graveyard_;
  std::vector<std::unique_ptr<Payload>> spare_payloads_;
  Slab<StorageRecord, RecordId> records_;
  FlatMap<RecordId> external_;                // by address of the storage
  std::vector<std::uint64_t> block_serials_;  // by block
  std::uint64_t serial_ = 0;
  std::atomic<int> kernels_{0};  // changed under the lock, read without it
  std::int64_t held_ = 0;
  std::int64_t most_held_ = 0;
  std::thread::id thread_;  // the one that entered
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<DecisionLog> log_;
  ObserverPair observers_{nullptr, nullptr};
  Engine engine_;  // its destructor calls the device, and nothing of what follows
  std::unique_ptr<ScheduleRunner> runner_;  // of a policy with a schedule
  BlockId bounce_;                          // of a GPU: what moves go through
  std::atomic<std::int64_t> used_{0};       // the same
  std::atomic<std::int64_t> reserved_{0};
};

// The allocator and the deleters of our storages (allocator.cpp).
c10::Allocator* pool_allocator();
c10::Allocator* plain_allocator();
void pool_delete(void* pointer);
void evicted_delete(void* record);

}  // namespace recoup::detail
