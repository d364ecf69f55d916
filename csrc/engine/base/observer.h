// Observer: watches an engine at work. Examples are the trace recorder, the log of decisions and
// the timeline.
#pragma once

#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "csrc/lineage/lineage.h"
#include "recoup/errors.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// Each method is called under the engine's lock, after the event. It may read the engine's state
// but must not change it.
class Observer {
 public:
  virtual ~Observer() = default;

  // ---- what the program does; replays cause none of these calls ----
  virtual void on_allocate(BlockId /*block*/, Bytes /*nbytes*/) {}
  virtual void on_free(BlockId /*block*/) {}
  virtual void on_external(StorageId /*storage*/, Bytes /*nbytes*/, bool /*among_outside*/) {}
  virtual void on_adopt(const FreshStorage& /*fresh*/, StorageId /*storage*/) {}
  virtual void on_death(StorageId /*storage*/) {}
  virtual void on_disown(StorageId /*storage*/) {}
  virtual void on_escape(StorageId /*storage*/) {}
  // An escaped storage has left the pool.
  virtual void on_leave(StorageId /*storage*/) {}
  virtual void on_pin(StorageId /*storage*/) {}
  virtual void on_unpin(StorageId /*storage*/) {}
  virtual void on_evict_request(StorageId /*storage*/) {}
  // An op on lists is about to run in parts. Its parts follow, then on_parts_end. If on_parts_end
  // comes at once, the op as a whole follows, or nothing if it does not fit.
  virtual void on_parts_begin(std::string_view /*name*/, std::span<const Part> /*parts*/) {}
  virtual void on_parts_end() {}
  virtual void on_materialize_all() {}
  virtual void on_step(std::string_view /*name*/) {}
  // An op begins. All that its kernel allocates and frees follows, and then on_op_end or
  // on_op_failed. on_op_retry voids what its kernel has done so far.
  virtual void on_op_begin(std::string_view /*name*/, std::span<const Operand> /*operands*/) {}
  virtual void on_op_retry() {}
  virtual void on_op_end(const OpRecord& /*record*/, std::span<const Operand> /*operands*/,
                         std::span<const StorageId> /*fresh*/) {}
  virtual void on_op_failed() {}

  // ---- what the engine decides ----
  virtual void on_evict(ValueId /*value*/) {}
  virtual void on_spill(ValueId /*value*/) {}
  virtual void on_fetch(ValueId /*value*/) {}
  virtual void on_replay(std::string_view /*name*/, OpId /*id*/, const Op& /*op*/) {}
  virtual void on_move(ValueId /*value*/, PoolOffset /*to*/) {}
  // The charged bytes have reached a new maximum.
  virtual void on_peak() {}
  // A request does not fit: OutOfBudget with this report is about to be thrown.
  virtual void on_out_of_budget(const OutOfBudgetReport& /*report*/) {}
  // From now on the evictions of a step follow a plan, or no longer do.
  virtual void on_plan(const TracePlan& /*plan*/, std::span<const TraceEviction> /*evictions*/) {}
};

}  // namespace recoup::detail
