// Whether an engine could have recorded this: the rules of a trace, record by record.
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
// The engine, the planners and the tables rely on it, so it is checked before they see anything.
//   names       differ, are UTF-8; names, kernels, storages and blocks are there before their use
//   a kernel    allocates at least a byte at a time and frees what it holds, once
//   an op       has each operand once, all of them alive, and reads what it writes only in part;
//   what
//               its kernel holds at the end is what it returns, no more; one that failed returns
//               nothing
//   a block     is held until it is freed or adopted, once; it has at least a byte; one that a
//               kernel goes on holding is an allocation of the op right before, of the same size,
//               which is no result, once
//   a storage   is alive until it dies or is disowned, once; only one from outside is disowned;
//               it is unpinned as often as it was pinned
//   parts       of an op on lists have each operand once, all of them alive; they end before those
//               of another begin, and have begun before they end
//   a plan      names evictions in the order of the ops that run then; one that leaves all to the
//               default names none
//   a device    is told once at most, before all else; its alignment is a power of two
//   sizes       Note [Bounds of a trace]
class TraceValidator final : public TraceSink {
 public:
  // Each throws BadTrace that names the event or the kernel. What was told before may be kept.
  void set_device(const TraceDevice& device) override;
  void add_name(std::string_view name) override;
  void add_kernel(std::span<const KernelStep> steps) override;
  void add_op(const TraceOp& op, std::span<const TraceOperand> operands,
              std::span<const TraceFresh> fresh) override;
  void add_plan(const TracePlan& plan, std::span<const TraceEviction> evictions) override;
  void add_list_op(const TraceListOp& op, std::span<const TracePart> parts,
                   std::span<const TracePartOperand> operands) override;
  void add_event(const TraceEvent& event) override;

  [[nodiscard]] std::size_t storages() const { return storages_.size(); }
  // That the ops run, all together, with the storages that are looked at before ops on lists.
  [[nodiscard]] std::uint64_t kernel_steps() const { return kernel_steps_; }

 private:
  static constexpr Bytes kFreed{-1};

  struct Kernel {
    std::size_t first = 0;  // of its allocations, in allocations_
    std::uint32_t made = 0;
    std::uint32_t kept = 0;  // of them, at its end
    std::uint32_t steps = 0;
    Bytes peak{0};
    Bytes total{0};  // of what it allocates
  };
  struct Storage {
    Bytes size{0};  // of its block
    std::uint32_t pins = 0;
    bool alive = true;
    bool external = false;
    bool escaped = false;
  };
  // Finds what is named twice, without clearing anything in between.
  class Once {
   public:
    void begin() { ++round_; }
    // False: it was named before.
    [[nodiscard]] bool add(std::size_t index);

   private:
    std::uint32_t round_ = 0;
    std::vector<std::uint32_t> seen_;  // the round, by index
  };

  // What is being looked at, for messages.
  struct Place {
    const char* noun = "name";
    std::uint64_t number = 0;
    const TraceOp* op = nullptr;
  };

  [[noreturn]] void fail(const std::string& what) const;
  void check_size(Bytes size, Bytes most = kMostBytes) const;
  void check_block_size(Bytes size) const;
  void check_count(std::uint64_t count, const char* what) const;
  void check_part(Bytes part, Bytes whole, const char* what) const;
  Storage& living(std::uint32_t storage);
  void add_storage(Bytes size, bool external);
  void end_storage(std::uint32_t storage);
  void leave(std::uint32_t storage);
  void take(Bytes size);
  Bytes let_go_of_block(std::uint32_t block);
  void add_traffic(Bytes size);
  void check_costs(const TraceOp& op);
  void check_operands(std::span<const TraceOperand> operands);
  void check_part_of_list(const TracePart& part, std::span<const TracePartOperand> operands);
  void end_parts();
  void check_held(std::uint32_t allocation, Bytes size);
  void check_results(const TraceOp& op, const Kernel& kernel, std::span<const TraceFresh> fresh);

  std::unordered_set<std::string> name_set_;
  std::vector<const std::string*> names_;  // in it, by number
  std::vector<Kernel> kernels_;
  std::vector<Bytes> allocations_;  // of all kernels: its size, or kFreed at the kernel's end
  std::vector<Bytes> sizes_;        // of the same allocations
  std::vector<Storage> storages_;
  std::vector<Bytes> blocks_;  // size, or kFreed
  Once operands_once_;
  Once results_once_;
  Once held_once_;
  std::uint64_t after_op_ = ~std::uint64_t{0};  // number of the event right after an op
  std::uint32_t kernel_before_ = 0;             // of that op

  bool has_device_ = false;
  Place place_;
  std::uint64_t events_ = 0;
  std::uint64_t plans_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t list_ops_ = 0;
  std::uint64_t parts_ = 0;
  std::uint64_t part_operands_ = 0;
  bool in_parts_ = false;
  std::uint64_t ops_ = 0;
  std::uint64_t operands_ = 0;
  std::uint64_t results_ = 0;
  std::uint64_t kernel_steps_ = 0;
  std::uint32_t scope_exits_ = 0;
  std::uint64_t alive_ = 0;  // storages
  Bytes live_{0};
  Bytes traffic_{0};
  Nanoseconds cost_{0};
};

}  // namespace recoup::detail
