// Engine: keeps the tensors of a program within a budget. Only the engine changes the state of
// values and storages. This class is its interface; each part of it is a class of its own.
//
// Not thread safe: every call is made under one lock of the caller. Device::replay releases that
// lock while kernels run. So during a replay, allocate, free and storage_died may be called from
// any thread; see Note [What may happen during a replay] in replay.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "csrc/engine/attempt/attempts.h"
#include "csrc/engine/base/op.h"
#include "csrc/engine/program/in_parts.h"
#include "csrc/engine/program/program_op.h"
#include "csrc/engine/program/read_ahead.h"
#include "csrc/engine/program/schedule_requests.h"
#include "csrc/engine/program/user_requests.h"
#include "csrc/engine/program/write_behind.h"
#include "csrc/engine/reclaim/disturber.h"
#include "csrc/engine/reclaim/evictor.h"
#include "csrc/engine/reclaim/mover.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/replay/freezer.h"
#include "csrc/engine/replay/records.h"
#include "csrc/engine/replay/replayer.h"
#include "csrc/engine/state/candidates.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"
#include "csrc/engine/state/non_recomputables.h"
#include "csrc/engine/state/out_of_budget.h"
#include "csrc/engine/state/pages.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/state/verifier.h"
#include "csrc/engine/tier/async_copies.h"
#include "csrc/engine/tier/spiller.h"
#include "recoup/errors.h"
#include "recoup/options.h"
#include "recoup/policy.h"
#include "recoup/stats.h"

namespace recoup::detail {

class Engine final {
 public:
  // Throws std::invalid_argument when the options contradict each other. The device must outlive
  // this object.
  Engine(const Options& options, Device& device);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- memory, any thread ----
  // A block for a kernel, unevictable until it is adopted or freed. Makes room if necessary; throws
  // OutOfBudget, which names the running op, if that is impossible. `at`: its offset, where the
  // pool must be free.
  BlockId allocate(Bytes nbytes, std::optional<PoolOffset> at = std::nullopt);
  // Frees a block that no value owns.
  void free(BlockId block);
  // Allocates the block through which the device moves blocks whose old and new places overlap.
  // Call it before anything else, so that the block lies at an end of the pool.
  BlockId reserve_bounce();
  [[nodiscard]] const Pool& pool() const { return context_.pool; }
  // The storage whose content is in a block; invalid: none.
  [[nodiscard]] StorageId storage_in(BlockId block) const;
  // The storage whose content is in a block or is being read into it; invalid: none.
  [[nodiscard]] StorageId storage_of(BlockId block) const;

  // ---- storages ----
  // Registers a storage that was made outside the pool, with a non-recomputable value. Charges its
  // bytes, unless they are among Options::outside.
  enum class Charge : std::uint8_t {
    kNow,
    kAmongOutside,
    kWindow,  // now, for overflow memory: traces have no such storage
  };
  StorageId add_external(void* handle, Bytes nbytes, Charge charge = Charge::kNow,
                         SegmentId segment = {});
  // Copies the content of a storage in the pool to the spill tier, for simulations that begin with
  // such copies.
  void save(StorageId storage) { (void)spiller_.save(current(storage)); }
  // Note [Segments].
  void set_segment(const SegmentChange& change) { importer_.set_segment(change); }
  // Asks the device for changes of segments.
  void update_segments() { importer_.update_segments(); }
  // Registers an external storage again that was reported dead, but was found again by the program.
  // `value`, its last value, is still on record because values can be recomputed from it.
  StorageId revive_external(ValueId value);
  // Registers a storage over a kernel-held block, with a non-recomputable value.
  StorageId adopt(const FreshStorage& fresh);
  // The memory of an external storage was replaced, and its old bytes are gone. Throws if an
  // evicted value that is needed was computed from them.
  void disown_external(StorageId storage);
  // The last reference to the storage is gone, or its memory was replaced. Frees what is not needed
  // any more.
  void storage_died(StorageId storage);
  [[nodiscard]] ValueId current(StorageId storage) const { return values_.current(storage); }
  [[nodiscard]] void* handle(StorageId storage) const { return values_[storage].handle; }
  [[nodiscard]] const Value& value(ValueId id) const { return context_.lineage[id]; }
  [[nodiscard]] const Values& values() const { return values_; }

  // ---- what the program runs ----
  ProgramOp& op() { return op_; }
  // Runs the kernel of an op that has begun.
  [[nodiscard]] const Attempts& attempts() const { return attempts_; }
  InParts& in_parts() { return in_parts_; }
  // For messages. The caller owns the name, which must live until the next call.
  void set_running_op(std::string_view name) { context_.running_op = name; }
  [[nodiscard]] std::string_view running_op() const { return context_.running_op; }
  // Null: attribution is off. The table must outlive the engine or be reset to null.
  void set_makers(MakerTable* makers) { context_.makers = makers; }
  // Attributes what is made from now on to `maker`, until the next call.
  void set_maker(MakerId maker) {
    if (context_.makers != nullptr) {
      context_.makers->run(maker);
    }
  }
  void set_name(StorageId storage, NameId name) { values_[storage].name = name; }

  // ---- the user's requests ----
  // Makes the value resident by replays and fetches.
  void restore(ValueId value) { (void)replayer_.hold(value); }
  // Waits for all copies to and from the spill tier.
  void end_copies() { copies_.wait_for_all(); }
  // Time that ops have waited for copies, by the ops' names.
  [[nodiscard]] std::vector<CopyWaitRow> copy_waits() const { return copies_.waits(); }
  UserRequests& user() { return user_; }
  [[nodiscard]] const UserRequests& user() const { return user_; }
  // Evicts until `need` bytes are free, if possible, and makes free bytes contiguous. `pinned`:
  // values that an op has pinned; they stay resident and may move. False: less is free.
  bool defragment(std::span<const ValueId> pinned, Bytes need) {
    return room_.defragment(pinned, need);
  }
  void grow(Bytes budget) { room_.grow(budget); }  // to a larger budget
  // Reduces the budget: evicts and moves until the rest fits. Throws OutOfBudget if it does not;
  // the budget and all guarantees are unchanged then, though values may have been evicted.
  // Observers do not receive grow and shrink: a trace is the same in every budget.
  // announce: whether an observer receives the error.
  void shrink(Bytes budget, Announce announce = Announce::kToObserver) {
    room_.shrink(budget, announce);
  }
  // Reduces the budget by free bytes only, also while an op runs. False, without a change: less is
  // free, or an op runs in parts, which needs the room that it has found.
  [[nodiscard]] bool shrink_by_free(Bytes budget) {
    return !in_parts_.active() && room_.shrink_by_free(budget);
  }
  // Where the budget grows from when an op does not fit. Null: it does not grow. It must outlive
  // the engine or be reset to null.
  void set_more(MoreMemory* more) { context_.more = more; }
  // The peak of the charged bytes since the last call.
  [[nodiscard]] Bytes take_recent_peak() {
    return std::exchange(context_.recent_peak, context_.charged());
  }
  // Starts a new peak of the charged bytes at what is charged now.
  void reset_peak() {
    context_.stats.peak_bytes = -1;  // below any charge, so that observers receive it
    context_.count_peak();
  }

  // ---- schedules and plans ----
  // Null: no schedule. It must outlive the engine or be reset to null.
  void set_schedule(ScheduleHooks* schedule) { context_.schedule = schedule; }
  ScheduleRequests& schedule() { return schedule_; }
  // Null: no plan. It must outlive the engine.
  void set_victim_plan(VictimPlan* plan) { context_.victim_plan = plan; }
  void set_forecast(UseForecast* forecast) { context_.forecast = forecast; }

  // ---- queries ----
  [[nodiscard]] bool replaying() const { return context_.replaying; }
  [[nodiscard]] const Options& options() const { return context_.options; }
  // The budget in force.
  [[nodiscard]] Bytes budget() const { return context_.budget; }
  // Bytes in use outside the pool since before the scope.
  [[nodiscard]] Bytes outside() const { return context_.outside; }
  [[nodiscard]] Bytes charged() const { return context_.charged(); }
  // Counts the pages that the pool takes from now on, before the first allocation.
  void count_pages() { pages_.count_from_start(); }
  // The memory that the pool and the charges outside of it take. An upper bound.
  [[nodiscard]] Bytes committed() const { return pages_.committed(); }
  // The state that all parts share.
  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] Stats stats() const;
  // The counters without the gauges.
  [[nodiscard]] const Stats& counters() const { return context_.stats; }
  [[nodiscard]] const SearchWork& search_work() const { return policy_->work(); }
  [[nodiscard]] const Footprint& footprint() const { return pages_.footprint(); }
  void check() const;

  // ---- observers and settings ----
  // Null: no observer. Each must outlive the engine or be reset to null.
  void set_pool_observer(PoolObserver* observer) { context_.pool.set_observer(observer); }
  void set_observer(Observer* observer) { context_.observer = observer; }
  // For policies that look ahead. The same holds for `future`.
  [[nodiscard]] bool looks_ahead() const { return candidates_.needs().future; }
  void set_future(const Future* future) { candidates_.set_future(future); }
  // Replaces the test aids. Their counts continue.
  void set_test_aids(const TestAids& aids) { context_.aids = aids; }
  // Takes over what another engine has learned: its placer, and `enough`, the budget in which it
  // would have evicted nothing.
  void learn_from(const Placer& placer, Bytes enough) {
    context_.placer.learn_from(placer);
    context_.enough = enough;
  }

 private:
  void let_go(StorageId storage);

  // Each part may use the parts above it.
  Context context_;
  std::unique_ptr<EvictionPolicy> policy_;
  Candidates candidates_;
  Verifier verifier_;
  Values values_;
  NonRecomputables non_recomputables_;
  Pages pages_;
  Enough enough_;
  OutOfBudgetReporter reporter_;
  AsyncCopies copies_;
  Spiller spiller_;
  Evictor evictor_;
  Mover mover_;
  Importer importer_;
  Disturber disturber_;
  Handover handover_;
  Room room_;
  Attempts attempts_;
  Replayer replayer_;
  Freezer freezer_;
  Records records_;
  WriteBehind write_behind_;
  ReadAhead read_ahead_;
  ProgramOp op_;
  InParts in_parts_;
  UserRequests user_;
  ScheduleRequests schedule_;
};

}  // namespace recoup::detail
