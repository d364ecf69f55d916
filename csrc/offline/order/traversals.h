// Orders of one step that follow nothing but the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/offline/order/order_graph.h"

namespace recoup::detail {

// All give the nodes of `step`. What is free to come next is taken as the program has it.
std::vector<std::uint32_t> program_order(const OrderGraph& graph, const OrderStep& step);
// First ready, first run.
std::vector<std::uint32_t> breadth_first(const OrderGraph& graph, const OrderStep& step);
// Last ready, first run.
std::vector<std::uint32_t> depth_first(const OrderGraph& graph, const OrderStep& step);
// From each node that nobody waits for back to what it needs, which comes first.
std::vector<std::uint32_t> reverse_depth_first(const OrderGraph& graph, const OrderStep& step);

}  // namespace recoup::detail
