// NextUsePredictor: which storages the coming ops will use, in steps that repeat.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/engine/base/observer.h"
#include "csrc/engine/base/planned_victims.h"
#include "csrc/foresight/step_log.h"

namespace recoup::detail {

// Note [Next uses]
// Every step is hashed as it runs, and written down: which storages each op uses. While a later
// step does what a known one did, that says what its next ops will use: storages that were there
// before are known by themselves, those that the step makes by the op that made them. A step is
// known from its second run on. Where ops run side by side on threads nothing is known.
//
// To be given to an engine as planned victims and as observer before it runs anything. It names no
// victims.
class NextUsePredictor final : public Observer, public PlannedVictims {
 public:
  // It must outlive this.
  explicit NextUsePredictor(const Engine& engine);

  // PlannedVictims.
  void before_op(std::string_view name, std::span<const Operand> operands) override;
  void on_no_op() override { running_.reset(); }
  [[nodiscard]] ValueId next() const override { return {}; }
  [[nodiscard]] std::optional<std::uint32_t> next_use(StorageId storage) const override;
  [[nodiscard]] bool uses_ahead(std::uint32_t n, std::vector<StorageId>& storages) const override;

  // Observer.
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_external(StorageId storage, Bytes nbytes, bool among_outside) override;
  void on_adopt(const FreshStorage& fresh, StorageId storage) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_op_failed() override;
  void on_step(std::string_view name) override;

 private:
  static constexpr std::size_t kMostKnown = 4;
  // What runs for longer without the end of a step is none.
  static constexpr std::uint32_t kMostOps = 1U << 16;

  // A storage, in terms that hold for the step's next run.
  struct Use {
    std::optional<Made> made;  // by an op of the step
    PinTicket storage;         // else: it was there before
  };
  // By op: the rows of op i are those from first[i] to first[i + 1].
  struct Step {
    std::vector<StepHash> hashes;  // of all ops before it and of what it is called with
    std::vector<Use> uses;
    std::vector<std::uint32_t> first{0};
    std::vector<std::uint32_t> next;           // by row: the op that uses the same next; kNever
    std::vector<std::uint32_t> first_made{0};  // by op: rows of what it made
    std::vector<std::uint32_t> first_use;      // by these rows: the op; kNever
    StepHash hash = 0;
  };
  static constexpr std::uint32_t kNever = 0xffffffff;
  struct NextUse {
    std::uint64_t birth = 0;
    std::uint32_t op = kNever;
  };

  void begin_step();
  void end_step();
  void drop_step();
  static void connect(Step& step);
  void follow(const Step& step);
  void pass_op(std::span<const StorageId> fresh);
  void set_next_use(const PinTicket& storage, std::uint32_t op);
  [[nodiscard]] Use use_of(StorageId storage) const;
  [[nodiscard]] StorageId find(const Use& use) const;

  const Engine& engine_;
  std::vector<std::unique_ptr<Step>> known_;  // the last used first
  const Step* following_ = nullptr;
  std::vector<NextUse> next_uses_;  // by StorageId, in the step that is followed

  // Of the running step.
  StepLog log_;
  Step step_;
  std::vector<PinTicket> made_;  // fresh storages of its ops
  std::vector<std::uint32_t> first_made_{0};
  std::optional<StepHash> running_;  // op
  int open_ops_ = 0;                 // of all threads
  bool given_up_ = false;
};

// Whether a run with these options has an next_use_predictor, or plans evictions: a plan knows of
// no second tier.
[[nodiscard]] bool has_next_use_predictor(const Options& options);
[[nodiscard]] bool has_foresight(const Options& options);

}  // namespace recoup::detail
