// Ledger: attributes memory and time to modules (makers).
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
  // Both must outlive this object. The engine must use the table, and report to this observer, from
  // its first op on.
  Ledger(const Engine& engine, const MakerTable& makers) : engine_(engine), makers_(makers) {}

  // The holdings when the charged bytes were at their peak. Names of storages may be added later.
  [[nodiscard]] const std::vector<Holding>& peak() const { return peak_.rows(); }
  [[nodiscard]] Bytes peak_bytes() const { return peak_.charged(); }
  // The last request that did not fit, with the holdings at that time; nullopt: there was none.
  [[nodiscard]] std::optional<Refusal> refusal() const;
  // Indexed by MakerId. Makers beyond the last row have done no work yet.
  [[nodiscard]] const std::vector<MakerWork>& work() const { return work_; }
  // Sets the name of a live storage.
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
