// Orders of one step that depend on the graph only.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/offline/order/order_graph.h"

namespace recoup::detail {

// All of these return the nodes of `step`. Ties are broken by program order.
std::vector<std::uint32_t> program_order(const OrderGraph& graph, const OrderStep& step);
// Breadth first: first ready, first run.
std::vector<std::uint32_t> breadth_first(const OrderGraph& graph, const OrderStep& step);
// Depth first: last ready, first run.
std::vector<std::uint32_t> depth_first(const OrderGraph& graph, const OrderStep& step);
// From each node without dependents back to its inputs, which run first.
std::vector<std::uint32_t> reverse_depth_first(const OrderGraph& graph, const OrderStep& step);

}  // namespace recoup::detail
