#include "csrc/offline/order/traversals.h"

#include <algorithm>
#include <deque>
#include <numeric>

namespace recoup::detail {
namespace {

// Runs ready nodes from the front of a queue. `add` inserts the nodes that have become ready, which
// are in program order, into the queue.
template <class Add>
std::vector<std::uint32_t> forward(const OrderGraph& graph, const OrderStep& step, Add add) {
  std::vector<std::size_t> waits_for(step.end - step.begin);
  std::vector<std::uint32_t> ready;
  for (std::uint32_t node = step.begin; node < step.end; ++node) {
    waits_for[node - step.begin] = graph.nodes[node].before.size();
    if (graph.nodes[node].before.empty()) {
      ready.push_back(node);
    }
  }
  std::deque<std::uint32_t> queue;
  add(queue, ready);
  std::vector<std::uint32_t> order;
  while (!queue.empty()) {
    const std::uint32_t node = queue.front();
    queue.pop_front();
    order.push_back(node);
    ready.clear();
    for (const std::uint32_t after : graph.nodes[node].after) {
      if (--waits_for[after - step.begin] == 0) {
        ready.push_back(after);
      }
    }
    add(queue, ready);
  }
  return order;
}

}  // namespace

std::vector<std::uint32_t> program_order(const OrderGraph&, const OrderStep& step) {
  std::vector<std::uint32_t> order(step.end - step.begin);
  std::iota(order.begin(), order.end(), step.begin);
  return order;
}

std::vector<std::uint32_t> breadth_first(const OrderGraph& graph, const OrderStep& step) {
  return forward(graph, step, [](auto& queue, const auto& ready) {
    queue.insert(queue.end(), ready.begin(), ready.end());
  });
}

std::vector<std::uint32_t> depth_first(const OrderGraph& graph, const OrderStep& step) {
  return forward(graph, step, [](auto& queue, const auto& ready) {
    queue.insert(queue.begin(), ready.begin(), ready.end());
  });
}

std::vector<std::uint32_t> reverse_depth_first(const OrderGraph& graph, const OrderStep& step) {
  struct Frame {
    std::uint32_t node;
    std::size_t next = 0;  // index into its `before`
  };
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(step.end - step.begin);
  std::vector<Frame> stack;
  const auto enter = [&](std::uint32_t node) {
    if (!seen[node - step.begin]) {
      seen[node - step.begin] = true;
      stack.push_back({.node = node});
    }
  };
  for (std::uint32_t sink = step.begin; sink < step.end; ++sink) {
    if (!graph.nodes[sink].after.empty()) {
      continue;
    }
    enter(sink);
    while (!stack.empty()) {
      const std::uint32_t node = stack.back().node;
      const std::vector<std::uint32_t>& before = graph.nodes[node].before;
      if (stack.back().next == before.size()) {
        order.push_back(node);
        stack.pop_back();
      } else {
        enter(before[stack.back().next++]);
      }
    }
  }
  return order;
}

}  // namespace recoup::detail
