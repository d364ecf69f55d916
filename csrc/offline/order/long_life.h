// The long-life rules of CANN's graph engine.
#pragma once

#include <cstdint>

#include "csrc/offline/order/step_lives.h"

namespace recoup::detail {

enum class LongLife : std::uint8_t { kNone, kFixed, kDynamic };

// Moves nodes of one step to just before the first one that waits for them, where the most live
// bytes on the way there do not rise. Returns how many moved.
std::int64_t move_behind_long_lives(const OrderGraph& graph, LongLife rule, StepLives& lives);

}  // namespace recoup::detail
