// The long-life rules of CANN's graph engine.
#pragma once

#include <cstdint>

#include "csrc/offline/order/step_lives.h"

namespace recoup::detail {

enum class LongLife : std::uint8_t { kNone, kFixed, kDynamic };

// Delays nodes of one step until just before their first dependent, where that does not raise the
// maximum of live bytes on the way. Returns the number of nodes that moved.
std::int64_t delay_long_lived_readers(const OrderGraph& graph, LongLife rule, StepLives& lives);

}  // namespace recoup::detail
