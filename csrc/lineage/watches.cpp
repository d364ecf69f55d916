#include "csrc/lineage/watches.h"

#include <algorithm>

namespace recoup::detail {

ComponentWatches::Component& ComponentWatches::component(SetId id) {
  if (id.index() >= components_.size()) {
    components_.resize(std::size_t{id.index()} + 1);
  }
  return components_[id.index()];
}

ComponentWatches::Watcher& ComponentWatches::watcher(ValueId id) {
  if (id.index() >= values_.size()) {
    values_.resize(std::size_t{id.index()} + 1);
  }
  return values_[id.index()];
}

void ComponentWatches::watch(ValueId value, std::span<const SetId> components, Nanoseconds sum) {
  Watcher& watcher = this->watcher(value);
  ++watcher.watch;
  if (watcher.bound > Nanoseconds(0)) {
    watcher.shift = std::min<std::uint8_t>(watcher.shift + 1, kLeastSlack);
  }
  watcher.bound = sum;
  for (SetId id : components) {
    Component& component = this->component(id);
    const Nanoseconds slack =
        sum / (std::int64_t{1} << watcher.shift) / static_cast<std::int64_t>(components.size());
    watcher.bound -= slack;
    add(component, {.until = component.returned + slack, .value = value, .watch = watcher.watch});
  }
}

void ComponentWatches::add(Component& component, const Watch& watch) {
  component.watches.push_back(watch);
  std::push_heap(component.watches.begin(), component.watches.end());
  if (component.watches.size() > 2 * component.kept + 16) {
    std::erase_if(component.watches, [this](const Watch& each) {
      return values_[each.value.index()].watch != each.watch;
    });
    std::make_heap(component.watches.begin(), component.watches.end());
    component.kept = component.watches.size();
  }
}

void ComponentWatches::tell(ValueId value, Watcher& watcher) {
  ++watcher.watch;
  watcher.bound = {};
  if (!watcher.notified) {
    watcher.notified = true;
    notified_.push_back(value);
  }
}

void ComponentWatches::lose(ValueId value) {
  if (value.index() < values_.size() && at_least(value) > Nanoseconds(0)) {
    tell(value, values_[value.index()]);
  }
}

void ComponentWatches::on_return(SetId id, Nanoseconds cost) {
  Component& component = this->component(id);
  component.returned += cost;
  while (!component.watches.empty() && component.watches.front().until < component.returned) {
    const Watch over = component.watches.front();
    std::pop_heap(component.watches.begin(), component.watches.end());
    component.watches.pop_back();
    Watcher& watcher = values_[over.value.index()];
    if (watcher.watch == over.watch) {
      watcher.shift = std::max<std::uint8_t>(watcher.shift - 1, kMostSlack);
      tell(over.value, watcher);
    }
  }
}

void ComponentWatches::on_join(SetId kept, SetId gone) {
  Component from = std::exchange(component(gone), {});
  Component& to = component(kept);
  if (from.watches.size() > to.watches.size()) {
    std::swap(from, to);
  }
  for (Watch watch : from.watches) {
    if (values_[watch.value.index()].watch == watch.watch) {
      watch.until += to.returned - from.returned;
      add(to, watch);
    }
  }
}

void ComponentWatches::on_remove(SetId id) {
  if (id.index() < components_.size()) {
    components_[id.index()] = {};
  }
}

std::vector<ValueId> ComponentWatches::take_notified() {
  for (ValueId value : notified_) {
    values_[value.index()].notified = false;
  }
  return std::exchange(notified_, {});
}

}  // namespace recoup::detail
