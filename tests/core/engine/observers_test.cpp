// Observers passes every event of observer_events.inc on to all of its observers, in order.
#include "csrc/engine/base/observers.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace recoup::detail {
namespace {

using Heard = std::vector<std::string>;

// Writes down the events that it receives, after its own name.
class Listener final : public Observer {
 public:
  Listener(std::string name, Heard& heard) : name_(std::move(name)), heard_(heard) {}

#define RECOUP_EVENT(method, parameters, arguments) \
  void method parameters override {                 \
    Observer::method arguments;                     \
    heard_.push_back(name_ + " " #method);          \
  }
#include "csrc/engine/base/observer_events.inc"
#undef RECOUP_EVENT

 private:
  const std::string name_;
  Heard& heard_;
};

template <class... Parameters>
void cause(Observer& observer, void (Observer::*event)(Parameters...)) {
  (observer.*event)(std::remove_cvref_t<Parameters>{}...);
}

TEST(Observers, PassEachEventOnInOrder) {
  Heard heard;
  Listener one("one", heard);
  Listener two("two", heard);
  Observers all{&one, nullptr, &two};
#define RECOUP_EVENT(method, parameters, arguments) \
  heard.clear();                                    \
  cause(all, &Observer::method);                    \
  EXPECT_EQ(heard, (Heard{"one " #method, "two " #method}));
#include "csrc/engine/base/observer_events.inc"
#undef RECOUP_EVENT
}

TEST(Observers, PassArgumentsOnUnchanged) {
  struct Moves final : Observer {
    void on_move(ValueId value, PoolOffset to) override {
      last = value;
      where = to;
    }
    ValueId last;
    PoolOffset where;
  } moves;
  Observers inner{&moves};
  Observers outer{&inner};
  outer.on_move(ValueId(3), 64_B);
  EXPECT_EQ(moves.last, ValueId(3));
  EXPECT_EQ(moves.where, 64_B);
}

TEST(Observers, MayBeNone) {
  Observers none{nullptr};
  none.on_peak();
  Observers().on_peak();
}

}  // namespace
}  // namespace recoup::detail
