#include "csrc/engine/reclaim/disturber.h"

#include "csrc/base/strings.h"
#include "recoup/test_aids.h"

namespace recoup::detail {

Disturber::Disturber(const Context& context, Evictor& evictor, Mover& mover,
                     const OutOfBudgetReporter& reporter)
    : context_(context), evictor_(evictor), mover_(mover), reporter_(reporter) {}

// Within a replay, evicting everything would make each waiting op replay it all again: the number
// of replays doubles with every residual connection. So within a replay only an eviction that is
// requested by number (force_eviction) is done.
void Disturber::before_allocation(Bytes size) {
  const TestAids& aids = context_.aids;
  const std::int64_t count = context_.stats.allocations;
  if (aids.strikes(aids.fail_allocation, count)) {
    reporter_.fail(size, str_cat("a test aid made allocation ", count, " fail"));
  }
  const bool forced = aids.strikes(aids.force_eviction, count);
  if ((forced && count == aids.force_eviction) || ((forced || aids.shake) && !context_.replaying)) {
    evictor_.evict_everything_on_request();
  }
  if (aids.shake) {
    mover_.move_everything();
  }
}

void Disturber::before_replay(OpId op) {
  const TestAids& aids = context_.aids;
  if (aids.strikes(aids.fail_replay, ++begun_replays_)) {
    throw InjectedFault(str_cat("recoup: a test aid made replay ", begun_replays_,
                                " fail: ", context_.device.name(context_.lineage[op].payload)));
  }
}

}  // namespace recoup::detail
