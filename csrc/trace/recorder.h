// Writes down what a program does on an engine.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/engine/observer.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

// To be given to an engine before it runs anything, and to outlive its last call. Ids of the engine
// are used again; a trace numbers its storages and blocks as they appear.
class TraceRecorder final : public Observer {
 public:
  explicit TraceRecorder(TraceSink& sink) : sink_(sink) {}

  // A training step ends here.
  void mark_step(std::string_view name);

  void on_allocate(BlockId block, Bytes nbytes) override;
  void on_free(BlockId block) override;
  void on_external(StorageId storage, Bytes nbytes) override;
  void on_adopt(const FreshStorage& fresh, StorageId storage) override;
  void on_death(StorageId storage) override;
  void on_forsake(StorageId storage) override;
  void on_escape(StorageId storage) override { add(TraceEvent::Kind::kEscape, storage); }
  void on_pin(StorageId storage) override { add(TraceEvent::Kind::kPin, storage); }
  void on_unpin(StorageId storage) override { add(TraceEvent::Kind::kUnpin, storage); }
  void on_evict_request(StorageId storage) override { add(TraceEvent::Kind::kEvict, storage); }
  void on_settle() override;
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_op_retry() override;
  void on_op_end(const OpRecord& record, std::span<const StorageId> fresh) override;
  void on_op_failed() override;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  void add(TraceEvent::Kind kind, StorageId storage);
  void end_op(TraceOp op, std::span<const TraceFresh> fresh);
  std::uint32_t name_index(std::string_view name);
  std::uint32_t kernel_index();
  [[nodiscard]] Bytes size_of(std::uint32_t number) const;
  // Puts `number` at the place of a slab's id.
  static void put(std::vector<std::uint32_t>& table, std::uint32_t index, std::uint32_t number);
  void add_storage(StorageId storage) { put(storages_, storage.index(), storage_count_++); }

  TraceSink& sink_;
  std::unordered_map<std::string, std::uint32_t> names_;
  std::unordered_map<std::string, std::uint32_t> kernels_;  // by the bytes of their steps
  std::vector<std::uint32_t> storages_;                     // number by StorageId
  std::vector<std::uint32_t> blocks_;                       // number by BlockId
  std::uint32_t storage_count_ = 0;
  std::uint32_t block_count_ = 0;

  // The op that is running.
  bool in_op_ = false;
  std::uint32_t name_ = 0;
  std::vector<TraceOperand> operands_;
  std::vector<KernelStep> steps_;
  std::vector<std::uint32_t> allocations_;  // number in the kernel by BlockId; kNone: not its own
  std::vector<BlockId> made_;               // block by number in the kernel
  std::vector<TraceEvent> after_;           // what happened beside the kernel, told after the op
  int after_adopts_ = 0;
};

}  // namespace recoup::detail
