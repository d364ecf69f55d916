// Observers: several observers in place of one.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "csrc/engine/base/observer.h"

namespace recoup::detail {

// Passes each event on to all observers of a list, in its order.
class Observers : public Observer {
 public:
  Observers() = default;
  // Null pointers are left out. The observers must outlive this object.
  Observers(std::initializer_list<Observer*> all) { set(all); }

#define RECOUP_EVENT(method, parameters, arguments) \
  void method parameters override {                 \
    for (Observer* const observer : all_) {         \
      observer->method arguments;                   \
    }                                               \
  }
#include "csrc/engine/base/observer_events.inc"
#undef RECOUP_EVENT

 protected:
  // Replaces the list. No event may be under way.
  void set(std::initializer_list<Observer*> all) {
    all_.clear();
    std::copy_if(all.begin(), all.end(), std::back_inserter(all_),
                 [](const Observer* observer) { return observer != nullptr; });
  }

 private:
  std::vector<Observer*> all_;
};

}  // namespace recoup::detail
