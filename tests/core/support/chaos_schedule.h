// A schedule without a plan: it restores, keeps and drops random values at random times.
#pragma once

#include <random>
#include <vector>

#include "csrc/engine/base/schedule_hooks.h"
#include "csrc/engine/program/engine.h"

namespace recoup::detail {

class ChaosSchedule final : public ScheduleHooks, public Observer {
 public:
  ChaosSchedule(Engine& engine, std::uint64_t seed) : engine_(engine), random_(seed) {}

  void before_op(std::string_view /*name*/, std::span<const Operand> /*operands*/) override {
    std::vector<ValueTicket> wanted;
    while (!tickets_.empty() && random_() % 3 == 0) {
      wanted.push_back(any());
      for (std::size_t i = 0; i + 1 < wanted.size(); ++i) {
        if (wanted[i].value == wanted.back().value) {
          wanted.pop_back();  // restore() takes distinct values
          break;
        }
      }
    }
    engine_.schedule().restore(wanted);
  }
  void after_op() override {
    while (!tickets_.empty() && random_() % 3 != 0) {
      switch (random_() % 3) {
        case 0:
          engine_.schedule().drop(any());
          break;
        case 1:
          engine_.schedule().keep(any(), true);
          break;
        default:
          engine_.schedule().keep(any(), false);
          break;
      }
    }
  }
  [[nodiscard]] bool keeps(const ValueTicket& ticket) const override {
    return ticket.value.index() % 2 == 0;
  }
  void on_op_end(const OpRecord& /*record*/, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override {
    for (const StorageId storage : fresh) {
      tickets_.push_back(engine_.values().ticket(engine_.current(storage)));
    }
    for (const Operand& operand : operands) {
      if (operand.storage.valid() && operand.written) {
        tickets_.push_back(engine_.values().ticket(engine_.current(operand.storage)));
      }
    }
  }
  // Ends all keeps and detaches the schedule, so that unneeded values can be freed.
  void release_all() {
    for (const ValueTicket& ticket : tickets_) {
      engine_.schedule().keep(ticket, false);
    }
    engine_.set_schedule(nullptr);
  }

 private:
  [[nodiscard]] const ValueTicket& any() { return tickets_[random_() % tickets_.size()]; }

  Engine& engine_;
  std::mt19937_64 random_;
  std::vector<ValueTicket> tickets_;  // of values that may have ended, too
};

}  // namespace recoup::detail
