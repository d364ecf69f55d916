// Who has to be told when a component of union-find gets cheaper.
//
// A component may be next to every candidate, and what comes back from it makes all of them
// cheaper. So a value that asked for its cost holds on to less than that, and is told only when
// more than the difference has come back: its slack. Who asks again though nothing was told gets
// half of it, and twice that when it was told.
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
  // It may be next to one component less.
  void lose(ValueId value);
  // What comes back from it was counted in `kept` or will be; `gone` was a component.
  void on_join(SetId kept, SetId gone);
  void on_return(SetId component, Nanoseconds cost);
  // Nothing of it is evicted any more.
  void on_remove(SetId component);

  // The components next to a value cost no less, until it is told otherwise.
  [[nodiscard]] Nanoseconds at_least(ValueId value) const {
    return value.index() < values_.size() ? values_[value.index()].bound : Nanoseconds{};
  }
  // Values whose bound went since the last call, once each; some may be gone.
  [[nodiscard]] std::vector<ValueId> take_told();

 private:
  static constexpr std::uint8_t kMostSlack = 1;
  static constexpr std::uint8_t kLeastSlack = 20;
  struct Watcher {
    Nanoseconds bound{};
    std::uint32_t watch = 0;          // the last one; earlier ones are void
    std::uint8_t shift = kMostSlack;  // slack is 1 / 2^shift of the cost
    bool told = false;
  };
  struct Watch {
    Nanoseconds until;  // of Component::returned
    ValueId value;
    std::uint32_t watch;
    bool operator<(const Watch& other) const { return other.until < until; }  // heap: least first
  };
  struct Component {
    Nanoseconds returned{};      // all that came back from it
    std::vector<Watch> watches;  // a heap
    std::size_t kept = 0;        // of them when those that are void were last removed
  };

  Component& component(SetId id);
  Watcher& watcher(ValueId id);
  void add(Component& component, const Watch& watch);
  void tell(ValueId value, Watcher& watcher);

  std::vector<Watcher> values_;        // by index of the value
  std::vector<Component> components_;  // by index of the root
  std::vector<ValueId> told_;
};

}  // namespace recoup::detail
