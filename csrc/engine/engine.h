// The engine: the only place that changes state. It pins, evicts, replays and accounts.
//
// Not thread safe: every call is made under the caller's one lock. Device::replay gives that lock
// up while kernels run, so between its start and its end allocate, free and storage_died may be
// called from any thread; see Note [What may happen during a replay] in replay.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/engine/candidates.h"
#include "csrc/engine/conductor.h"
#include "csrc/engine/device.h"
#include "csrc/engine/enough.h"
#include "csrc/engine/footprint.h"
#include "csrc/engine/observer.h"
#include "csrc/engine/op.h"
#include "csrc/engine/placement.h"
#include "csrc/engine/values.h"
#include "csrc/engine/verifier.h"
#include "csrc/lineage/lineage.h"
#include "csrc/pool/pool.h"
#include "recoup/errors.h"
#include "recoup/options.h"
#include "recoup/policy.h"
#include "recoup/stats.h"

namespace recoup::detail {

class Replayer;

// What a pin of the user's is on. Ids are used again, births are not.
struct PinTicket {
  StorageId storage;
  std::uint64_t birth = 0;
};

class Engine final {
 public:
  Engine(const Options& options, Device& device);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- memory, any thread ----
  // A block for a kernel: unevictable until adopted or freed. Makes room when there is none; throws
  // OutOfBudget, which names the running op, when that is impossible.
  BlockId allocate(Bytes nbytes);
  // Frees a block that no value owns.
  void free(BlockId block);
  [[nodiscard]] PoolOffset offset(BlockId block) const { return pool_.offset(block); }
  [[nodiscard]] std::optional<BlockId> block_at(PoolOffset offset) const {
    return pool_.find(offset);
  }
  [[nodiscard]] bool owned(BlockId block) const { return pool_.owner(block) != 0; }
  [[nodiscard]] Bytes block_size(BlockId block) const { return pool_.size(block); }
  // The storage whose content is in a block, if any.
  [[nodiscard]] StorageId storage_in(BlockId block) const;

  // ---- storages ----
  // Registers a storage that was made outside the pool: a leaf. Its bytes are charged, unless they
  // are among Options::outside.
  enum class Charge : std::uint8_t { kNow, kAmongOutside };
  StorageId add_external(void* handle, Bytes nbytes, Charge charge = Charge::kNow);
  // One that was said to be dead has been found again by the program, while something can still be
  // recomputed from it; `value` is what was its current value.
  StorageId revive_external(ValueId value);
  // Registers a storage over a kernel-held block, as a leaf.
  StorageId adopt(const FreshStorage& fresh);
  // The bytes of an external storage are no longer the ones we know, and gone. Throws when an
  // evicted value that somebody needs was made from them.
  void forsake_external(StorageId storage);
  // Its last reference is gone, or its bytes are no longer the ones we know. Frees what nobody
  // needs.
  void storage_died(StorageId storage);
  [[nodiscard]] ValueId current(StorageId storage) const { return storages_[storage].current; }
  [[nodiscard]] void* handle(StorageId storage) const { return storages_[storage].handle; }
  // Ids of storages are used again; this tells one from an earlier one.
  [[nodiscard]] std::uint64_t birth(StorageId storage) const { return storages_[storage].birth; }
  // Whether the storage of a pin is still alive.
  [[nodiscard]] bool holds(const PinTicket& pin) const {
    return storages_.contains(pin.storage) && storages_[pin.storage].birth == pin.birth;
  }
  [[nodiscard]] const Value& value(ValueId id) const { return lineage_[id]; }

  // ---- the life of an op, as a program runs it ----
  // Makes the operands' values resident, pins them and names them in `value`. When it throws, the
  // op has not begun: nothing is pinned, and there is nothing to abort.
  void begin_op(std::string_view name, std::span<Operand> operands);
  // Its kernel failed only because free memory was in pieces: see defragment, whose result this is.
  [[nodiscard]] bool retry_op(std::span<const Operand> operands, Bytes need);
  // It is done. `uses` are the operands', and record.inputs and record.written refer to them;
  // `storages[i]` is the new storage of fresh[i]. An operand's storage is invalid by now when it is
  // no longer what it was.
  void end_op(OpRecord& record, const OpUses& uses, std::span<const Operand> operands,
              std::span<StorageId> storages);
  // An op that ended with an estimate of its cost took so long; `made` is the ticket of one of its
  // results, or of none. Note [Late costs] in late_cost.cpp.
  void learn_cost(const ValueTicket& made, Nanoseconds estimate, Nanoseconds cost);
  // It failed half way.
  void abort_op(std::span<const Operand> operands);

  // ---- and its parts ----
  enum class Tries : std::uint8_t { kOne, kAll };  // Note [Other tries] in replay.h
  // To be called for each storage that the op will write, before its arguments are acquired.
  void before_write(StorageId storage);
  // Makes the values resident, replaying what it takes, and pins each once, in place. All or
  // nothing.
  void acquire(std::span<const ValueId> values, Tries tries = Tries::kAll);
  void release(std::span<const ValueId> values) noexcept;
  // A kernel that writes these storages is about to run; finish or fail ends it. False: one of them
  // has to be given to before_write again, with nothing pinned; call both again.
  [[nodiscard]] bool start_writing(std::span<const StorageId> storages);
  // Whether a record with a payload would be kept: not when nothing that it made is worth it.
  [[nodiscard]] bool recordable(const OpRecord& record) const;
  // Records a finished op: `storages[i]` is the new storage of fresh[i].
  void finish(const OpRecord& record, std::span<StorageId> storages);
  // The op failed half way: what it may have written holds who knows what, and is a leaf.
  void fail(std::span<const WrittenStorage> written);
  // For an op that failed only because free memory was in pieces, before it is tried again: evicts
  // until `need` bytes are free, if that is possible, and slides everything that may move to one
  // side. `pinned` are the values that the op holds with acquire; they stay resident and may move.
  // False: less is free, and there is nothing left to evict.
  [[nodiscard]] bool defragment(std::span<const ValueId> pinned, Bytes need);
  // Set around a kernel for error messages.
  void set_running_op(std::string_view name) { running_op_ = name; }
  // The kernel that is about to run must not be run again by retry_op.
  void run_once() { enough_.run_once(); }
  [[nodiscard]] std::string_view running_op() const { return running_op_; }

  // ---- the user's wishes ----
  bool evict(StorageId storage);
  void escape(StorageId storage);
  // Whether escaping or overwriting it would replay.
  [[nodiscard]] bool has_needed_dependents(StorageId storage) const;
  // Makes it resident and keeps it so, through writes; counted.
  [[nodiscard]] PinTicket pin(StorageId storage);
  // Does nothing when the storage is gone: its pins went with it.
  void unpin(const PinTicket& ticket) noexcept;
  // Makes every live storage resident and a leaf. Throws OutOfBudget; then nothing is lost.
  void settle_all();
  // Whether they are.
  [[nodiscard]] bool settled() const;
  void grow(Bytes budget);
  // A smaller budget: evicts and moves until what is left fits. Throws OutOfBudget when it does
  // not; then the budget is what it was, and so is all that is promised, though some may have been
  // evicted. Observers are not told of either: a trace is the same in every budget.
  void shrink(Bytes budget);
  void evict_everything();

  // ---- a schedule's ----
  // Null: none. It must outlive the engine or be taken away.
  void set_conductor(Conductor* conductor) { conductor_ = conductor; }
  [[nodiscard]] ValueTicket ticket(ValueId id) const;
  // Whether the value is still on record.
  [[nodiscard]] bool holds(const ValueTicket& ticket) const;
  // Evicts it if that is possible.
  void drop(const ValueTicket& ticket);
  // A kept value is not let go when nobody needs it; the policy may evict it, and that ends it.
  void keep(const ValueTicket& ticket, bool on);
  // Replays what is evicted of them, and keeps it, if there is room for all.
  void restore(std::span<const ValueTicket> tickets);

  // Blocks of the storages that are alive, for whoever frees them when the engine is gone.
  [[nodiscard]] std::vector<BlockView> live_blocks() const;
  [[nodiscard]] bool replaying() const { return replayer_ != nullptr; }

  [[nodiscard]] Stats stats() const;
  [[nodiscard]] std::vector<PinnedRow> pinned() const;
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] Bytes charged() const { return pool_.used() + charges_.external; }
  [[nodiscard]] const Footprint& footprint() const { return footprint_; }
  void check() const;

  // Time spent making room so far; the binding subtracts its growth from an op's cost.
  [[nodiscard]] Nanoseconds room_time() const { return room_time_; }
  // Plain cost of all ops that the program ran, and of all replays.
  [[nodiscard]] Nanoseconds op_cost() const { return Nanoseconds(stats_.op_ns); }
  [[nodiscard]] Nanoseconds replay_cost() const { return Nanoseconds(stats_.replay_cost_ns); }
  // Null: nobody looks on. It must outlive the engine or be taken away.
  void set_observer(Observer* observer) { observer_ = observer; }
  // For policies that look ahead; the same holds.
  [[nodiscard]] bool looks_ahead() const { return candidates_.needs().future; }
  void set_future(const Future* future) { candidates_.set_future(future); }
  // Other ones from now on; their counts go on.
  void set_test_aids(const TestAids& aids);
  void add_books(std::ptrdiff_t bytes) { charges_.device_books += bytes; }

 private:
  friend class Replayer;
  // room.cpp
  void place_replay(OpId op);
  BlockId take_block(Bytes nbytes);
  std::optional<BlockId> find_block(Bytes size);  // timed now and then
  void make_room(Bytes size);
  void count_misfit();
  void touch_pages(PoolOffset from, Bytes size);
  void fit_footprint();
  void give_pages_back();
  void make_room_for_charge(Bytes size);
  EvictionPlan plan_eviction(const RoomRequest& request);
  bool evict_one(const RoomRequest& request);
  void evict_all(std::span<const ValueId> victims);
  bool evict_soft_pinned();
  bool drop_dead_leaf(Bytes missing);
  bool compact(Bytes size, Nanoseconds& lost);
  bool move_together(Bytes size);
  [[nodiscard]] Bytes capacity_in(Bytes budget) const;
  [[nodiscard]] Bytes unevictable() const;
  bool clear_addresses(Bytes capacity);
  // Note [Enough]
  [[nodiscard]] bool roomy() const { return enough_.most() <= options_.budget; }
  [[nodiscard]] Enough::State plain_state() const {
    return {
        .plain = charges_.plain + charges_.dead_leaves + charges_.kernel_held + charges_.external,
        .held = charges_.kernel_held,
        .held_blocks = charges_.kernel_blocks,
        .islands = charges_.islands};
  }
  void count_enough(Bytes size);
  [[nodiscard]] Bytes all_resident() const;
  void evict_candidates();
  [[nodiscard]] Nanoseconds price_of(const EvictionPlan& plan) const;
  [[nodiscard]] Bytes worth_moving(Nanoseconds price) const;
  void evict_value(ValueId id);
  void forsake(ValueId id);
  [[nodiscard]] Bytes shortfall(Bytes size) const;
  bool do_moves(const CompactionPlan& plan);
  bool move_all(std::span<const Move> moves);
  [[noreturn]] void throw_out_of_budget(Bytes asked, std::string reason,
                                        bool fragmented = false) const;
  [[nodiscard]] bool movable(std::uint32_t owner) const;

  // test_aids.cpp
  [[nodiscard]] bool strikes(std::int64_t at, std::int64_t count) const;
  void disturb_allocation(Bytes size);
  void disturb_replay(OpId op);
  void move_everything();
  [[nodiscard]] std::optional<PoolOffset> another_place(BlockId id, Zone zone);
  void poison_old(PoolOffset from, PoolOffset to, Bytes size);

  // freeze.cpp
  struct Dependents {
    std::vector<ValueId> evicted;   // reached, without bytes
    std::vector<ValueId> needed;    // those of them that somebody holds
    std::vector<ValueId> resident;  // first ones with bytes on each path, to stay
  };
  // Past dead values with bytes too: what is evicted behind them keeps them.
  enum class Reach : std::uint8_t { kToBytes, kPastDead };
  [[nodiscard]] Dependents dependents(ValueId leaf, Reach reach = Reach::kToBytes) const;
  void freeze(ValueId leaf, const Dependents& dependents);
  void restore_dependents(ValueId leaf, std::vector<ValueId>& held);
  void keep_copy(ValueId leaf);
  void freeze_or_copy(StorageId storage);
  void consider_dead_leaf(ValueId id);
  void place_low(StorageId storage);
  void make_state(StorageId storage);

  void let_go(StorageId storage);
  void replay(std::span<const ValueId> values, Tries tries, std::vector<ValueId>& dead_leaves);

  // copy_on_write.cpp
  BlockId relocate(StorageId id, BlockId to);
  void copy_before_write(std::span<const StorageId> storages);
  void discard_copies(std::span<const StorageId> storages) noexcept;
  void discard_copy(HeldStorage& storage) noexcept;

  // record.cpp
  void charge_external(Bytes size);
  void supersede(StorageId storage, OpId op, bool overwritten);
  void record_leaves(const OpRecord& record, std::span<StorageId> storages);
  void record_op(const OpRecord& record, std::span<StorageId> storages);
  StorageId add_storage(const FreshStorage& fresh);
  void take_operands(std::span<Operand> operands);
  void release_operands(std::span<const Operand> operands) noexcept;
  [[nodiscard]] Nanoseconds cost_by_bytes(const OpRecord& record) const;
  // Who looks on at what the program does; null while a replay runs.
  [[nodiscard]] Observer* program_observer() const {
    return replayer_ == nullptr ? observer_ : nullptr;
  }
  void touch(ValueId id) {
    lineage_[id].last_access = now_;
    candidates_.touch(id);
  }
  void bound_books();
  Options options_;
  Device& device_;
  Pool pool_;
  Placer placer_;
  Footprint footprint_;
  Bytes in_part_pages_;  // how far pages and charges may be over the budget: parts of pages
  MovePrice move_price_;
  Lineage lineage_;
  std::uint64_t next_birth_;  // starts at the clock's time: not even a later engine repeats one
  std::unique_ptr<EvictionPolicy> policy_;
  Tick now_ = 0;
  Candidates candidates_;
  Verifier verifier_;
  Values values_;
  Slab<HeldStorage, StorageId>& storages_;  // those of values_
  Charges& charges_;                        // the same
  Replayer* replayer_ = nullptr;            // the running one
  Observer* observer_ = nullptr;
  Conductor* conductor_ = nullptr;
  Enough enough_;
  bool told_to_evict_ = false;  // by the user, a schedule or a test
  std::string_view running_op_;
  Nanoseconds room_time_{0};
  bool disturbed_ = false;  // by Options::aids
  bool moved_low_ = false;
  std::int64_t begun_replays_ = 0;
  std::ptrdiff_t books_bound_ = 0;
  mutable Stats stats_;
};

}  // namespace recoup::detail
