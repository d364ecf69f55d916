// TraceValidator: checks the rules of a trace record by record.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "csrc/trace/limits.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

// Note [What a recorder guarantees]
// The engine, the planners and the tables rely on these rules, so they are checked first.
//   names       differ and are UTF-8; names, kernels, storages and blocks are added before their
//               use
//   a kernel    allocates at least one byte at a time, and frees only what it holds, once
//   an op       has each operand once; operands are live; an operand that is only partly written is
//               also read; at its end its kernel holds exactly what the op returns; an op that
//               failed returns nothing
//   a block     is held until it is freed or adopted, once; it has at least one byte; a block that
//               a kernel goes on holding is an allocation of the op right before, of the same size,
//               is not a result, and appears once
//   a storage   is live until it dies or is disowned, once; only external ones and results that may
//   be
//               paged are disowned; it is not unpinned more often than it was pinned
//   parts       of an op on lists have each operand once; operands are live; the parts end after
//               they have begun, and before those of another op begin
//   a plan      names evictions in the order of the ops that run then; a plan without a list names
//               none
//   a device    appears at most once, before everything else; its alignment is a power of two
//   sizes       Note [Bounds of a trace]
class TraceValidator final : public TraceSink {
 public:
  // Each function throws BadTrace, which names the event or the kernel. Records that were added
  // before the error remain valid.
  void set_device(const TraceDevice& device) override;
  void add_name(std::string_view name) override;
  void add_kernel(std::span<const KernelStep> steps) override;
  void add_op(const TraceOp& op, std::span<const TraceOperand> operands,
              std::span<const TraceFresh> fresh) override;
  void add_plan(const TracePlan& plan, const TracePlanLists& lists) override;
  void add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                   std::span<const TracePartOperand> operands) override;
  void add_event(const TraceEvent& event) override;

  [[nodiscard]] std::size_t storages() const { return storages_.size(); }
  // Number of kernel steps that all ops run, plus the storages that are looked at before ops on
  // lists and after changes of segments.
  [[nodiscard]] std::uint64_t kernel_steps() const { return kernel_steps_; }

 private:
  using Kind = TraceEvent::Kind;
  static constexpr Bytes kFreed{-1};

  struct Kernel {
    std::size_t first = 0;  // index of its first allocation in allocations_
    std::uint32_t made = 0;
    std::uint32_t kept = 0;  // number of allocations that it holds at its end
    std::uint32_t steps = 0;
    Bytes peak{0};
    Bytes total{0};  // total size of its allocations
  };
  struct Storage {
    Bytes size{0};  // size of its block
    std::uint32_t pins = 0;
    bool alive = true;
    bool external = false;
    bool escaped = false;
  };
  // Finds duplicates without clearing its table for each list.
  class Once {
   public:
    void begin() { ++round_; }
    // False: `index` was added before.
    [[nodiscard]] bool add(std::size_t index);

   private:
    std::uint32_t round_ = 0;
    std::vector<std::uint32_t> seen_;  // round in which it was last added, by index
  };

  // Current position, for messages.
  struct Place {
    const char* noun = "name";
    std::uint64_t number = 0;
    const TraceOp* op = nullptr;
  };

  [[noreturn]] void fail(const std::string& what) const;
  void check_size(Bytes size, Bytes most = kMostBytes) const;
  void check_planned_value(std::uint32_t op, std::uint32_t slot) const;
  void check_planned(Bytes size, PoolOffset at) const;
  void check_block_size(Bytes size) const;
  void check_count(std::uint64_t count, const char* what) const;
  void check_part(Bytes part, Bytes whole, const char* what) const;
  Storage& living(std::uint32_t storage);
  void add_storage(Bytes size, bool external);
  void end_storage(Storage& storage);
  void take(Bytes size);
  Bytes let_go_of_block(std::uint32_t block);
  void add_block(const TraceEvent& event);
  void add_segment(const TraceEvent& event);
  void check_storage_event(const TraceEvent& event, Storage& storage);
  void check_other_event(const TraceEvent& event);
  void add_traffic(Bytes size);
  void check_costs(const TraceOp& op);
  void check_operands(std::span<const TraceOperand> operands);
  void check_part_of_list(const TracePart& part, std::span<const TracePartOperand> operands);
  void end_parts();
  void check_held(std::uint32_t allocation, Bytes size);
  void check_results(const TraceOp& op, const Kernel& kernel, std::span<const TraceFresh> fresh);

  std::unordered_set<std::string> name_set_;
  std::vector<const std::string*> names_;  // pointers into name_set_, by number
  std::vector<Kernel> kernels_;
  std::vector<Bytes> allocations_;  // of all kernels: size, or kFreed if freed at the kernel's end
  std::vector<Bytes> sizes_;        // sizes of the same allocations
  std::vector<Storage> storages_;
  std::vector<Bytes> blocks_;  // size, or kFreed
  Once operands_once_;
  Once results_once_;
  Once held_once_;
  std::uint64_t after_op_ = ~std::uint64_t{0};  // number of the event right after an op
  std::uint32_t kernel_before_ = 0;             // kernel of that op

  bool has_device_ = false;
  Place place_;
  std::uint64_t events_ = 0;
  std::uint64_t plans_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t planned_blocks_ = 0;
  Bytes alignment_{64};
  std::uint64_t list_ops_ = 0;
  std::uint64_t parts_ = 0;
  std::uint64_t part_operands_ = 0;
  bool in_parts_ = false;
  std::uint64_t segments_ = 0;
  std::uint64_t ops_ = 0;
  std::uint64_t operands_ = 0;
  std::uint64_t results_ = 0;
  std::uint64_t kernel_steps_ = 0;
  std::uint32_t scope_exits_ = 0;
  std::uint64_t alive_ = 0;  // number of live storages
  Bytes live_{0};
  Bytes traffic_{0};
  Nanoseconds cost_{0};
};

}  // namespace recoup::detail
