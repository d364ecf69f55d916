// Costs that are known only some time after the op: a device runs it when it gets to it.
#include "csrc/engine/engine.h"

namespace recoup::detail {

// Note [Late costs]
// Until its time is known an op has an estimate. What is evicted has passed it on, into the costs
// of components and of neighborhoods: there it stays, for both are sums from which it is taken
// again. So the time replaces it only while all that the op made has bytes, or is gone.
void Engine::learn_cost(const ValueTicket& made, Nanoseconds estimate, Nanoseconds cost) {
  if (options_.cost_model == CostModel::kBytes) {
    return;
  }
  stats_.op_ns += (cost - estimate).count();
  if (!holds(made)) {
    return;
  }
  const OpId op = lineage_[made.value].producer;
  bool passed_on = false;
  lineage_.for_each_output(op, [&](ValueId id) { passed_on |= lineage_[id].evicted(); });
  if (passed_on) {
    return;
  }
  lineage_.set_cost(op, cost);
  lineage_.for_each_output(op, [&](ValueId id) { candidates_.touch(id); });
}

}  // namespace recoup::detail
