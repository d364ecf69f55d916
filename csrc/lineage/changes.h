// ChangeLog: what changed between two plans, for a policy that keeps its candidates in order.
//
// Only decreases of a neighborhood's cost are reported: an increase is seen when the cost is
// computed again. A neighborhood gets cheaper when an evicted value is restored or lost. That
// affects all values that reached something through it. A walk through the values that are evicted
// now finds them:
//
//   v -- x -- u -- w      u was restored: a walk from u finds v through x, unless x was restored,
//                         too; then the walk from x finds v
//
// An edge disappears only when the value that it leads to is cut from its producer. If that value
// was the start of a walk upwards, the walk starts at the producer's inputs instead.
#pragma once

#include <span>
#include <vector>

#include "csrc/lineage/lineage.h"
#include "recoup/types.h"

namespace recoup::detail {

class ChangeLog {
 public:
  // The value became or ceased to be a candidate, or was accessed.
  void on_change(ValueId id) { mark(changed_, id, kChanged); }
  // on_return and on_cut are needed only for neighborhoods that are found by walks. on_return: an
  // evicted value was restored or lost. `exact`: neighborhoods have descendants, not only
  // ancestors.
  void on_return(ValueId id, bool exact);
  // A value is about to be cut from its producer.
  void on_cut(const Lineage& lineage, ValueId id);
  // The value's record is about to be removed.
  void on_lost(ValueId id) { entry(id).least = {}; }

  // All candidates that changed since the last call, and values that ceased to be candidates, once
  // each. Valid until the next change.
  std::span<const ValueId> collect(const Lineage& lineage);

  // A lower bound of the neighborhood cost of a resident value. Up to date after collect().
  [[nodiscard]] Nanoseconds at_least(ValueId id) const {
    return id.index() < entries_.size() ? entries_[id.index()].least : Nanoseconds{};
  }
  // Sets the bound to the current cost.
  void learn(ValueId id, Nanoseconds cost) { entry(id).least = cost; }

 private:
  static constexpr std::uint8_t kChanged = 1;
  static constexpr std::uint8_t kUp = 2;    // a walk to its ancestors starts here
  static constexpr std::uint8_t kDown = 4;  // a walk to its descendants starts here
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
