// What changed between two plans, for a policy that keeps its candidates in order.
//
// Only a decrease of a neighborhood's cost is told: what grew is seen when it is asked for again. A
// neighborhood gets cheaper when an evicted value gets its bytes back or is lost, and for all that
// reached something through it. Who that is follows from a walk through what is evicted now:
//
//   v -- x -- u -- w      u came back: a walk from u finds v through x, unless x came back too, and
//                         then the walk from x finds v
//
// An edge goes only when what it leads to is cut from its producer. If that was the start of a
// walk, the walk upwards starts behind the edge instead.
#pragma once

#include <span>
#include <vector>

#include "csrc/lineage/lineage.h"
#include "recoup/types.h"

namespace recoup::detail {

class ChangeLog {
 public:
  // It became or ceased to be a candidate, or was accessed.
  void on_change(ValueId id) { mark(changed_, id, kChanged); }
  // The two below: only if neighborhoods matter that are found by walks. An evicted value got its
  // bytes back, or is lost. `exact`: they have descendants, not ancestors only.
  void on_return(ValueId id, bool exact);
  // A value is about to be cut from its producer.
  void on_cut(const Lineage& lineage, ValueId id);
  // Its record is about to go.
  void on_lost(ValueId id) { entry(id).least = {}; }

  // All candidates that changed since the last call, and what is none any more, once each. Valid
  // until the next change.
  std::span<const ValueId> collect(const Lineage& lineage);

  // The neighborhood of a resident value costs no less. Up to date after collect().
  [[nodiscard]] Nanoseconds at_least(ValueId id) const {
    return id.index() < entries_.size() ? entries_[id.index()].least : Nanoseconds{};
  }
  // What it costs now.
  void learn(ValueId id, Nanoseconds cost) { entry(id).least = cost; }

 private:
  static constexpr std::uint8_t kChanged = 1;
  static constexpr std::uint8_t kUp = 2;    // a walk to its ancestors starts here
  static constexpr std::uint8_t kDown = 4;  // to its descendants
  struct Entry {
    Nanoseconds least{};
    std::uint8_t marks = 0;
  };

  Entry& entry(ValueId id) {
    if (id.index() >= entries_.size()) {
      entries_.resize(std::size_t{id.index()} + 1);
    }
    return entries_[id.index()];
  }
  void mark(std::vector<ValueId>& list, ValueId id, std::uint8_t bit) {
    Entry& at = entry(id);
    if ((at.marks & bit) == 0) {
      at.marks |= bit;
      list.push_back(id);
    }
  }
  void walk(const Lineage& lineage, std::span<const ValueId> starts, bool up);
  void cheaper(const Lineage& lineage, ValueId id);

  std::vector<Entry> entries_;  // by index of the value
  std::vector<ValueId> changed_;
  std::vector<ValueId> up_;
  std::vector<ValueId> down_;
  std::vector<ValueId> collected_;
  std::vector<ValueId> stack_;
};

}  // namespace recoup::detail
