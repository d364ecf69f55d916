// Observer: watches an engine at work. Examples are the trace recorder, the log of decisions and
// the timeline.
#pragma once

#include <span>
#include <string_view>

#include "csrc/engine/base/op.h"
#include "csrc/lineage/lineage.h"
#include "recoup/errors.h"
#include "recoup/trace.h"
#include "recoup/types.h"

namespace recoup::detail {

// Has a virtual method for each event of observer_events.inc, which does nothing. It is called
// under the engine's lock, after the event unless the event's comment says otherwise. It may read
// the engine's state but must not change it.
class Observer {
 public:
  virtual ~Observer() = default;

#define RECOUP_EVENT(method, parameters, arguments) \
  virtual void method parameters { ignore arguments; }
#include "csrc/engine/base/observer_events.inc"
#undef RECOUP_EVENT

 private:
  template <class... Arguments>
  static void ignore(const Arguments&... /*arguments*/) {}
};

}  // namespace recoup::detail
