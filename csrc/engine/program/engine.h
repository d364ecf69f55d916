// Engine: keeps the tensors of a program within a budget. The only place that changes state; this
// is its face, and each part of it is a class of its own.
//
// Not thread safe: every call is made under the caller's one lock. Device::replay gives that lock
// up while kernels run, so between its start and its end allocate, free and storage_died may be
// called from any thread; see Note [What may happen during a replay] in replay.cpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

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
  // Throws std::invalid_argument when the options do not go together. The device must outlive it.
  Engine(const Options& options, Device& device);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- memory, any thread ----
  // A block for a kernel: unevictable until adopted or freed. Makes room when there is none; throws
  // OutOfBudget, which names the running op, when that is impossible. `at`: where nothing must be.
  BlockId allocate(Bytes nbytes, std::optional<PoolOffset> at = std::nullopt);
  // Frees a block that no value owns.
  void free(BlockId block);
  // Allocates the block through which the device moves blocks whose old and new places overlap.
  // Call it before anything else, so that the block lies at an end of the pool.
  BlockId reserve_bounce();
  [[nodiscard]] const Pool& pool() const { return context_.pool; }
  // The storage whose content is in a block, if any.
  [[nodiscard]] StorageId storage_in(BlockId block) const;

  // ---- storages ----
  // Registers a storage that was made outside the pool: a non-recomputable value. Its bytes are
  // charged, unless they are among Options::outside.
  enum class Charge : std::uint8_t { kNow, kAmongOutside };
  StorageId add_external(void* handle, Bytes nbytes, Charge charge = Charge::kNow);
  // One that was said to be dead has been found again by the program, while something can still be
  // recomputed from it; `value` is what was its current value.
  StorageId revive_external(ValueId value);
  // Registers a storage over a kernel-held block, as a non-recomputable value.
  StorageId adopt(const FreshStorage& fresh);
  // The bytes of an external storage are no longer the ones we know, and gone. Throws when an
  // evicted value that somebody needs was made from them.
  void disown_external(StorageId storage);
  // Its last reference is gone, or its bytes are no longer the ones we know. Frees what nobody
  // needs.
  void storage_died(StorageId storage);
  [[nodiscard]] ValueId current(StorageId storage) const { return values_.current(storage); }
  [[nodiscard]] void* handle(StorageId storage) const { return values_[storage].handle; }
  [[nodiscard]] const Value& value(ValueId id) const { return context_.lineage[id]; }
  [[nodiscard]] const Values& values() const { return values_; }

  // ---- what the program runs ----
  ProgramOp& op() { return op_; }
  InParts& in_parts() { return in_parts_; }
  // The name is the caller's and must live until the next call. For messages.
  void set_running_op(std::string_view name) { context_.running_op = name; }
  [[nodiscard]] std::string_view running_op() const { return context_.running_op; }
  // Null: nobody asks who makes what. It must outlive the engine or be taken away.
  void set_makers(MakerTable* makers) { context_.makers = makers; }
  // Of what is made from now on; in force until the next call.
  void set_maker(MakerId maker) {
    if (context_.makers != nullptr) {
      context_.makers->run(maker);
    }
  }
  void set_name(StorageId storage, NameId name) { values_[storage].name = name; }

  // ---- the user's wishes ----
  // Makes the values resident, replaying what it takes, and pins each once, in place. All or
  // nothing.
  void acquire(std::span<const ValueId> values) { replayer_.acquire(values); }
  void release(std::span<const ValueId> values) noexcept { replayer_.release(values); }
  // No copy to or from the spill tier is under way when this returns.
  void end_copies() { copies_.wait_for_all(); }
  // By the ops' names.
  [[nodiscard]] std::vector<CopyWaitRow> copy_waits() const { return copies_.waits(); }
  UserRequests& user() { return user_; }
  [[nodiscard]] const UserRequests& user() const { return user_; }
  // Evicts until `need` bytes are free, if that is possible, and brings together what is free.
  // `pinned` are held with acquire; they stay resident and may move. False: less is free.
  bool defragment(std::span<const ValueId> pinned, Bytes need) {
    return room_.defragment(pinned, need);
  }
  void grow(Bytes budget) { room_.grow(budget); }
  // A smaller budget: evicts and moves until what is left fits. Throws OutOfBudget when it does
  // not; then the budget is what it was, and so is all that is promised, though some may have been
  // evicted. Observers are not told of either: a trace is the same in every budget.
  void shrink(Bytes budget) { room_.shrink(budget); }

  // ---- a schedule's ----
  // Null: none. It must outlive the engine or be taken away.
  void set_schedule(ScheduleHooks* schedule) { context_.schedule = schedule; }
  ScheduleRequests& schedule() { return schedule_; }
  // Null: none. The same.
  void set_planned(PlannedVictims* planned) { context_.planned = planned; }

  // ---- what there is ----
  [[nodiscard]] bool replaying() const { return context_.replaying; }
  [[nodiscard]] const Options& options() const { return context_.options; }
  [[nodiscard]] Bytes charged() const { return context_.charged(); }
  // What all its parts share.
  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] Stats stats() const;
  // The same without gauges, as it is counted.
  [[nodiscard]] const Stats& counters() const { return context_.stats; }
  [[nodiscard]] const Footprint& footprint() const { return pages_.footprint(); }
  void check() const;

  // ---- who takes part ----
  // Null: nobody looks on. It must outlive the engine or be taken away.
  void set_observer(Observer* observer) { context_.observer = observer; }
  // For policies that look ahead; the same holds.
  [[nodiscard]] bool looks_ahead() const { return candidates_.needs().future; }
  void set_future(const Future* future) { candidates_.set_future(future); }
  // Other ones from now on; their counts go on.
  void set_test_aids(const TestAids& aids) { context_.options.aids = aids; }
  // Places values and makes room as another engine would that has learned that, and would have
  // evicted nothing in that budget.
  void learn_from(const Placer& placer, Bytes enough) {
    context_.placer.learn_from(placer);
    context_.enough = enough;
  }

 private:
  void let_go(StorageId storage);

  // Each part knows those above it.
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
  Room room_;
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
