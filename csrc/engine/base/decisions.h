// DecisionLog: records the decisions of an engine in order.
#pragma once

#include <vector>

#include "csrc/engine/base/observer.h"
#include "recoup/decision.h"

namespace recoup::detail {

class DecisionLog final : public Observer {
 public:
  void on_evict(ValueId value) override {
    decisions_.push_back({.kind = Decision::Kind::kEvict, .what = value.index(), .where = 0});
  }
  void on_replay(std::string_view /*name*/, OpId /*id*/, const Op& op) override {
    decisions_.push_back({.kind = Decision::Kind::kReplay, .what = op.sequence, .where = 0});
  }
  void on_move(ValueId value, PoolOffset to) override {
    decisions_.push_back(
        {.kind = Decision::Kind::kMove, .what = value.index(), .where = to.count()});
  }
  void on_spill(ValueId value) override {
    decisions_.push_back({.kind = Decision::Kind::kSpill, .what = value.index(), .where = 0});
  }
  void on_fetch(ValueId value) override {
    decisions_.push_back({.kind = Decision::Kind::kFetch, .what = value.index(), .where = 0});
  }
  [[nodiscard]] const std::vector<Decision>& decisions() const { return decisions_; }

 private:
  std::vector<Decision> decisions_;
};

}  // namespace recoup::detail
