// ReplayedKernel: runs a recorded op again, as often as the attempts need.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "csrc/engine/attempt/attempts.h"
#include "csrc/engine/attempt/op_kernel.h"
#include "csrc/engine/reclaim/disturber.h"
#include "csrc/engine/reclaim/handover.h"
#include "csrc/engine/reclaim/room.h"
#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/state/verifier.h"

namespace recoup::detail {

// A kernel that ran out of memory can run again if it has written nothing yet. That is certain only
// if it writes nothing but its results.
class ReplayedKernel final : public OpKernel {
 public:
  struct Parts {
    Context& context;
    Values& values;
    Room& room;
    Verifier& verifier;
    Disturber& disturber;
    Handover& handover;
    const Attempts& attempts;
    const OutOfBudgetReporter& reporter;
  };
  // The op's inputs are pinned. All arguments must outlive this object.
  ReplayedKernel(const Parts& parts, OpId op);

  // Makes the outputs that are needed resident. Throws OutOfBudget, and what the kernel throws; the
  // outputs are unchanged then.
  void run_in_budget();

  std::optional<OutOfBudgetReport> run(const Attempt& attempt) override;
  [[nodiscard]] KernelLimits limits() const override;
  bool prepare(const Attempt& /*next*/, const std::function<bool()>& measure) override {
    return measure();
  }
  [[nodiscard]] Few<ValueId> movable() const override { return {}; }
  [[nodiscard]] std::vector<ValueId> overwritable() override;

 private:
  // A block that stands for a written storage.
  struct Buffer {
    Values::KernelBlock fresh{};  // empty: the block of `from`
    ValueId from{};               // the value whose block is handed over
  };

  [[nodiscard]] const Op& op() const { return lineage_[op_]; }
  void place();
  void run_once();
  [[nodiscard]] std::vector<Buffer> fill_buffers();
  [[nodiscard]] bool may_hand_over(ValueId before) const;
  [[nodiscard]] std::vector<Values::KernelBlock> run_kernel(std::span<const Buffer> buffers);
  void learn_cost(const Measurement& measured);
  void put_back(std::span<Values::KernelBlock> results);
  void drop_handed_over();

  const Parts parts_;
  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Handover& handover_;
  const OpId op_;
};

}  // namespace recoup::detail
