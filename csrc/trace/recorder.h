// TraceRecorder: records what a program does on an engine.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/hash.h"
#include "csrc/engine/base/observer.h"
#include "csrc/trace/sink.h"
#include "recoup/api.h"

namespace recoup::detail {

// Note [Ops side by side]
// Ops of several threads may overlap. A trace has them in sequence, in the order in which they end.
// A storage must not die before an op that still uses it, so deaths, frees and similar events are
// deferred until no op runs. Events that create something are recorded at once.
//
// Must be set as the engine's observer before the engine runs anything, and outlive its last call.
// The engine reuses ids; a trace numbers its storages and blocks as they appear.
class RECOUP_API TraceRecorder final : public Observer {
 public:
  // Times of steps differ from run to run, so they are recorded only on request.
  enum class Times : std::uint8_t { kNone, kOfSteps };
  explicit TraceRecorder(TraceSink& sink, Times times = Times::kNone)
      : sink_(sink), times_(times) {}

  void on_allocate(BlockId block, Bytes nbytes) override;
  void on_free(BlockId block) override;
  void on_external(StorageId storage, const OutsideStorage& outside) override;
  void on_segment(const SegmentChange& change) override;
  void on_adopt(const FreshStorage& fresh, StorageId storage) override;
  void on_death(StorageId storage) override;
  void on_disown(StorageId storage) override;
  void on_escape(StorageId storage) override { add(TraceEvent::Kind::kEscape, storage); }
  void on_escape_end(StorageId storage) override { add(TraceEvent::Kind::kEscapeEnd, storage); }
  void on_leave(StorageId storage) override { add(TraceEvent::Kind::kLeave, storage); }
  void on_pin(StorageId storage) override { add(TraceEvent::Kind::kPin, storage); }
  void on_unpin(StorageId storage) override { add(TraceEvent::Kind::kUnpin, storage); }
  void on_rule(StorageId storage, StorageRule rule) override {
    add(TraceEvent::Kind::kRule, storage, Bytes(static_cast<std::int64_t>(rule)));
  }
  void on_evict_request(StorageId storage) override { add(TraceEvent::Kind::kEvict, storage); }
  void on_parts_begin(std::string_view name, std::span<const Part> parts) override;
  void on_parts_end() override;
  void on_materialize_all() override;
  void on_step(std::string_view name) override;
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_op_retry() override;
  void on_overflow(OverflowKey key, Bytes nbytes) override;
  void on_overflow_free(OverflowKey key) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_op_failed(const KernelLimits& limits) override;
  void on_plan(const TracePlan& plan, const TracePlanLists& lists) override;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct RunningOp {
    std::thread::id thread;
    std::uint32_t name = 0;
    std::vector<TraceOperand> operands;
    std::vector<KernelStep> steps;
    std::vector<BlockId> made;  // block by number in the kernel; invalid: overflow memory
    // Number in the kernel of each allocation of overflow memory that it holds.
    std::vector<std::pair<OverflowKey, std::uint32_t>> overflow;
    bool may_overflow = false;
  };

  struct ListOp {
    TraceListOp op;
    std::vector<TracePart> parts;
    std::vector<TracePartOperand> operands;
  };

  RunningOp& add_running();
  void remove_running(RunningOp& op);
  // The op of this thread. On worker threads of a kernel, which have no op, the op that began last.
  RunningOp& running();
  void add(TraceEvent::Kind kind, StorageId storage, Bytes size = Bytes(0));
  void tell(const TraceEvent& event);
  void tell_deferred();
  void end_op(TraceOp op, std::span<const TraceFresh> fresh);
  [[nodiscard]] static std::uint32_t take_overflow(RunningOp& op, OverflowKey key);
  [[nodiscard]] std::uint32_t take_allocation(RunningOp& op, const FreshStorage& fresh);
  static void free_overflow(RunningOp& op);
  void let_go_of_blocks(RunningOp& op);
  void take_from_kernel(BlockId block);
  [[nodiscard]] static Bytes size_of(const RunningOp& op, std::uint32_t number);
  std::uint32_t name_index(std::string_view name);
  std::uint32_t kernel_index(std::span<const KernelStep> steps);
  // Tables from a slab's ids to numbers; kNone for ids that are not in a table.
  [[nodiscard]] static std::uint32_t get(const std::vector<std::uint32_t>& table,
                                         std::uint32_t index) {
    return index < table.size() ? table[index] : kNone;
  }
  static void put(std::vector<std::uint32_t>& table, std::uint32_t index, std::uint32_t number);
  void add_storage(StorageId storage) { put(storages_, storage.index(), storage_count_++); }

  TraceSink& sink_;
  Times times_;
  std::chrono::steady_clock::time_point step_began_ = std::chrono::steady_clock::now();
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> names_;
  std::unordered_map<std::string, std::uint32_t> kernels_;  // by the bytes of their steps
  std::string kernel_key_;                                  // buffer for such bytes
  std::vector<std::uint32_t> storages_;                     // number by StorageId
  std::vector<std::uint32_t> blocks_;                       // number by BlockId
  std::uint32_t storage_count_ = 0;
  std::uint32_t block_count_ = 0;

  // Usually one op. Autograd's and other threads may run ops concurrently.
  std::vector<RunningOp> running_;
  std::vector<RunningOp> spare_;            // empty ops that keep the capacity of their vectors
  std::vector<TraceFresh> returned_;        // of the op that ends; a member to reuse its capacity
  std::vector<std::size_t> older_;          // results that it got from before; the same
  std::vector<std::uint32_t> allocations_;  // number in its op's kernel by BlockId
  std::vector<TraceEvent> kept_;            // blocks that an ended kernel goes on holding
  std::vector<TraceEvent> deferred_;        // events that are recorded when no op runs any more
  std::vector<ListOp> deferred_list_ops_;   // the ops on lists of the kParts among them
  bool in_parts_ = false;                   // an op on lists has begun since recording started
};

}  // namespace recoup::detail
