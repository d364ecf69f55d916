// Looks on while an engine works: a trace recorder, a log of decisions, a timeline.
#pragma once

#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "csrc/lineage/lineage.h"
#include "recoup/errors.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// Called under the engine's lock, when what it tells has happened. May look at the engine, no more.
class Observer {
 public:
  virtual ~Observer() = default;

  // ---- what the program does; nothing that a replay does is told here ----
  virtual void on_allocate(BlockId /*block*/, Bytes /*nbytes*/) {}
  virtual void on_free(BlockId /*block*/) {}
  virtual void on_external(StorageId /*storage*/, Bytes /*nbytes*/, bool /*among_outside*/) {}
  virtual void on_adopt(const FreshStorage& /*fresh*/, StorageId /*storage*/) {}
  virtual void on_death(StorageId /*storage*/) {}
  virtual void on_disown(StorageId /*storage*/) {}
  virtual void on_escape(StorageId /*storage*/) {}
  // One that escaped has left the pool.
  virtual void on_leave(StorageId /*storage*/) {}
  virtual void on_pin(StorageId /*storage*/) {}
  virtual void on_unpin(StorageId /*storage*/) {}
  virtual void on_evict_request(StorageId /*storage*/) {}
  // An op on lists is about to run; nothing has happened for it yet. Its parts follow, and the end
  // of them; or the end at once, and then the op as a whole, or nothing where it does not fit.
  virtual void on_parts_begin(std::string_view /*name*/, std::span<const Part> /*parts*/) {}
  virtual void on_parts_end() {}
  virtual void on_materialize_all() {}
  virtual void on_step(std::string_view /*name*/) {}
  // An op, and all that its kernel allocates and frees in between, ends in one of the last two. A
  // retry voids what its kernel has done so far.
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
  // More is charged than ever before.
  virtual void on_peak() {}
  // A request does not fit: this is about to be thrown.
  virtual void on_out_of_budget(const OutOfBudgetReport& /*report*/) {}
  // What is evicted in a step is planned from now on, or no longer.
  virtual void on_plan(const TracePlan& /*plan*/, std::span<const TraceEviction> /*evictions*/) {}
};

}  // namespace recoup::detail
