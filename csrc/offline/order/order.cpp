// order_ops: orders each step separately and concatenates the steps.
#include "recoup/offline/order.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/offline/order/long_life.h"
#include "csrc/offline/order/traversals.h"

namespace recoup {
namespace detail {
namespace {

struct Traversal {
  OrderInfo info;
  std::vector<std::uint32_t> (*order)(const OrderGraph& graph, const OrderStep& step);
};

constexpr std::array kTraversals = {
    Traversal{{"program", "as the program ran them"}, program_order},
    Traversal{{"bfs", "breadth first: first ready, first run"}, breadth_first},
    Traversal{{"dfs", "depth first: last ready, first run"}, depth_first},
    Traversal{{"reverse-dfs", "from the results backwards, inputs first"}, reverse_depth_first},
};

constexpr std::array kRules = {
    OrderInfo{"none", "no op is moved"},
    OrderInfo{"fixed", "ops that read variables and constants only wait for their first reader"},
    OrderInfo{"dynamic", "ops whose inputs live longer than their outputs do"},
};

constexpr auto kTraversalInfos = [] {
  std::array<OrderInfo, kTraversals.size()> infos;
  std::transform(kTraversals.begin(), kTraversals.end(), infos.begin(),
                 [](const Traversal& traversal) { return traversal.info; });
  return infos;
}();

std::size_t index_of(std::span<const OrderInfo> infos, std::string_view name,
                     std::string_view what) {
  std::string known;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].name == name) {
      return i;
    }
    known += str_cat(known.empty() ? "" : ", ", infos[i].name);
  }
  throw std::invalid_argument(str_cat("unknown ", what, " '", name, "'; choose one of ", known));
}

}  // namespace
}  // namespace detail

std::span<const OrderInfo> traversals() { return detail::kTraversalInfos; }
std::span<const OrderInfo> long_life_rules() { return detail::kRules; }

OpOrder order_ops(const Trace& trace, std::string_view traversal, std::string_view long_life) {
  const auto& chosen =
      detail::kTraversals[detail::index_of(detail::kTraversalInfos, traversal, "traversal")];
  const auto rule =
      static_cast<detail::LongLife>(detail::index_of(detail::kRules, long_life, "long-life rule"));
  const detail::OrderGraph graph = detail::build_order_graph(trace);
  OpOrder result;
  result.traversal = traversal;
  result.long_life = long_life;
  for (std::uint32_t i = 0; i < graph.steps.size(); ++i) {
    const detail::OrderStep& step = graph.steps[i];
    const detail::StepLives program(graph, i, detail::program_order(graph, step));
    result.program_bound = std::max(result.program_bound, program.most());
    detail::StepLives lives(graph, i, chosen.order(graph, step));
    result.moves += detail::delay_long_lived_readers(graph, rule, lives);
    result.bound = std::max(result.bound, lives.most());
    RECOUP_CHECK(lives.order().size() == step.end - step.begin, traversal);
    for (const std::uint32_t node : lives.order()) {
      result.ops.push_back(graph.nodes[node].op);
    }
  }
  return result;
}

}  // namespace recoup
