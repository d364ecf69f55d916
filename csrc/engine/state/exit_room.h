// A budget that completes the exit of a scope.
#pragma once

#include "csrc/engine/state/context.h"

namespace recoup::detail {

// Note [Room for an exit]
// At an exit all live values get their bytes back, and stay pinned. Two budgets are enough for
// that, and an error names the smaller one:
//
//   a) live values, dead ones that are resident, and all that the replays make, with the largest
//      workspace. In it nothing is evicted.
//   b) live values, dead ones that cannot be evicted, and in addition what the replay of one
//      evicted live value holds. A replay waits for one input of an op at a time. At most the other
//      inputs of that op are pinned then, and so on, back to the first op. All other dead values
//      can be evicted, and are restored when their turn comes. So no live value has to be evicted,
//      and a replay's room is that of dead values alone.
//
// To both belongs what fixed blocks may separate, as in Note [Enough].
[[nodiscard]] Bytes room_for_exit(const Context& context);

}  // namespace recoup::detail
