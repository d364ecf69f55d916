// ObserverPair: combines two observers into one.
#pragma once

#include "csrc/engine/base/observer.h"

namespace recoup::detail {

// Either may be null. Both must outlive this object.
class ObserverPair : public Observer {
 public:
  ObserverPair(Observer* first, Observer* second) : observers_{first, second} {}

  void on_allocate(BlockId block, Bytes nbytes) override {
    tell(&Observer::on_allocate, block, nbytes);
  }
  void on_free(BlockId block) override { tell(&Observer::on_free, block); }
  void on_external(StorageId storage, Bytes nbytes, bool among_outside) override {
    tell(&Observer::on_external, storage, nbytes, among_outside);
  }
  void on_adopt(const FreshStorage& fresh, StorageId storage) override {
    tell(&Observer::on_adopt, fresh, storage);
  }
  void on_death(StorageId storage) override { tell(&Observer::on_death, storage); }
  void on_disown(StorageId storage) override { tell(&Observer::on_disown, storage); }
  void on_escape(StorageId storage) override { tell(&Observer::on_escape, storage); }
  void on_leave(StorageId storage) override { tell(&Observer::on_leave, storage); }
  void on_pin(StorageId storage) override { tell(&Observer::on_pin, storage); }
  void on_unpin(StorageId storage) override { tell(&Observer::on_unpin, storage); }
  void on_evict_request(StorageId storage) override { tell(&Observer::on_evict_request, storage); }
  void on_parts_begin(std::string_view name, std::span<const Part> parts) override {
    tell(&Observer::on_parts_begin, name, parts);
  }
  void on_parts_end() override { tell(&Observer::on_parts_end); }
  void on_materialize_all() override { tell(&Observer::on_materialize_all); }
  void on_step(std::string_view name) override { tell(&Observer::on_step, name); }
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override {
    tell(&Observer::on_op_begin, name, operands);
  }
  void on_op_retry() override { tell(&Observer::on_op_retry); }
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override {
    tell(&Observer::on_op_end, record, operands, fresh);
  }
  void on_op_failed() override { tell(&Observer::on_op_failed); }
  void on_evict(ValueId value) override { tell(&Observer::on_evict, value); }
  void on_replay(std::string_view name, OpId id, const Op& op) override {
    tell(&Observer::on_replay, name, id, op);
  }
  void on_move(ValueId value, PoolOffset to) override { tell(&Observer::on_move, value, to); }
  void on_peak() override { tell(&Observer::on_peak); }
  void on_out_of_budget(const OutOfBudgetReport& report) override {
    tell(&Observer::on_out_of_budget, report);
  }
  void on_spill(ValueId value) override { tell(&Observer::on_spill, value); }
  void on_fetch(ValueId value) override { tell(&Observer::on_fetch, value); }
  void on_plan(const TracePlan& plan, std::span<const TraceEviction> evictions) override {
    tell(&Observer::on_plan, plan, evictions);
  }

 protected:
  // `observer` may be null.
  void set_second(Observer* observer) { observers_[1] = observer; }

 private:
  template <class... Parameters, class... Arguments>
  void tell(void (Observer::*what)(Parameters...), const Arguments&... arguments) {
    for (Observer* observer : observers_) {
      if (observer != nullptr) {
        (observer->*what)(arguments...);
      }
    }
  }

  Observer* observers_[2];
};

}  // namespace recoup::detail
