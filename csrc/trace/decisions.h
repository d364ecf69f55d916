// What an engine decided, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/engine/observer.h"

namespace recoup::detail {

struct Decision {
  enum class Kind : std::uint8_t {
    kEvict,   // `what`: the value's id
    kReplay,  // `what`: the op's number among all that were recorded
    kMove,    // `what`: the value's id; `where`: its new offset
  };
  Kind kind = Kind::kEvict;
  std::uint64_t what = 0;
  std::int64_t where = 0;
  friend bool operator==(const Decision&, const Decision&) = default;
};

class DecisionLog final : public Observer {
 public:
  void on_evict(ValueId value) override {
    decisions_.push_back({.kind = Decision::Kind::kEvict, .what = value.index(), .where = 0});
  }
  void on_replay(OpId /*op*/, std::uint64_t sequence) override {
    decisions_.push_back({.kind = Decision::Kind::kReplay, .what = sequence, .where = 0});
  }
  void on_move(ValueId value, PoolOffset to) override {
    decisions_.push_back(
        {.kind = Decision::Kind::kMove, .what = value.index(), .where = to.count()});
  }
  [[nodiscard]] const std::vector<Decision>& decisions() const { return decisions_; }

 private:
  std::vector<Decision> decisions_;
};

}  // namespace recoup::detail
