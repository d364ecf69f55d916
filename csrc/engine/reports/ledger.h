// On whose behalf memory is held and time is spent.
#pragma once

#include <optional>
#include <vector>

#include "csrc/engine/base/observer.h"
#include "csrc/engine/program/engine.h"
#include "csrc/engine/reports/holdings.h"
#include "recoup/attribution.h"

namespace recoup::detail {

class Ledger final : public Observer {
 public:
  // Both must outlive it; the engine has the table, and observes through it from its first op on.
  Ledger(const Engine& engine, const MakerTable& makers) : engine_(engine), makers_(makers) {}

  // All that was charged when it was most. What a storage is called may be found out later.
  [[nodiscard]] const std::vector<Holding>& peak() const { return peak_.rows(); }
  [[nodiscard]] Bytes peak_bytes() const { return peak_.charged(); }
  // The last request that did not fit, and who held the memory then; nothing: there was none.
  [[nodiscard]] std::optional<Refusal> refusal() const;
  // By MakerId; shorter than there are makers where the last ones did nothing yet.
  [[nodiscard]] const std::vector<MakerWork>& work() const { return work_; }
  // A live storage has that name.
  void name(StorageId storage, NameId name);
  // Recounts the peak; throws InternalError.
  void check() const;

  void on_peak() override;
  void on_out_of_budget(const OutOfBudgetReport& report) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_evict(ValueId value) override;
  void on_replay(std::string_view name, OpId id, const Op& op) override;

 private:
  MakerWork& of(MakerId maker);

  const Engine& engine_;
  const MakerTable& makers_;
  Holdings peak_;
  std::optional<Refusal> refusal_;  // without its holdings, which are in `at_refusal_`
  Holdings at_refusal_;
  std::vector<MakerWork> work_;
  MakerWork unknown_;
};

}  // namespace recoup::detail
