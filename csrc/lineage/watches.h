// ComponentWatches: reports values when a component of the union-find next to them gets cheaper.
//
// A component may be next to every candidate, and every value that returns from it makes all of
// them cheaper. So a value whose cost was computed gets a bound below that cost, and is reported
// only when costs of more than the difference, its slack, have returned. If the cost is computed
// again before the value was reported, the slack is halved. Each report doubles it.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "csrc/lineage/lineage.h"
#include "recoup/types.h"

namespace recoup::detail {

class ComponentWatches {
 public:
  // `value` is next to these components, whose costs are above 0 and add up to `sum`.
  void watch(ValueId value, std::span<const SetId> components, Nanoseconds sum);
  // The value may have lost a component next to it.
  void lose(ValueId value);
  // The component `gone` was merged into `kept`, which counts all later returns.
  void on_join(SetId kept, SetId gone);
  void on_return(SetId component, Nanoseconds cost);
  // No value of the component is evicted any more.
  void on_remove(SetId component);

  // A lower bound of the cost of the components next to a value, until the value is reported.
  [[nodiscard]] Nanoseconds at_least(ValueId value) const {
    return value.index() < values_.size() ? values_[value.index()].bound : Nanoseconds{};
  }
  // Values whose bound was reset since the last call, once each. Some may be gone.
  [[nodiscard]] std::vector<ValueId> take_notified();

 private:
  static constexpr std::uint8_t kMostSlack = 1;
  static constexpr std::uint8_t kLeastSlack = 20;
  struct Watcher {
    Nanoseconds bound{};
    std::uint32_t watch = 0;          // number of the last watch; earlier ones are void
    std::uint8_t shift = kMostSlack;  // the slack is 1 / 2^shift of the cost
    bool notified = false;
  };
  struct Watch {
    Nanoseconds until;  // the watch is over when Component::returned exceeds it
    ValueId value;
    std::uint32_t watch;
    bool operator<(const Watch& other) const { return other.until < until; }  // heap: least first
  };
  struct Component {
    Nanoseconds returned{};      // sum of the costs of all values that returned from it
    std::vector<Watch> watches;  // a heap
    std::size_t kept = 0;        // number of watches left when void ones were last removed
  };

  Component& component(SetId id);
  Watcher& watcher(ValueId id);
  void add(Component& component, const Watch& watch);
  void tell(ValueId value, Watcher& watcher);

  std::vector<Watcher> values_;        // by index of the value
  std::vector<Component> components_;  // by index of the root
  std::vector<ValueId> notified_;
};

}  // namespace recoup::detail
