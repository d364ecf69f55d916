// A node whose inputs live long in any case can be delayed, so that its outputs live shorter.
//
//   weight  x==========================x        x==========================x
//   node        [cast]                                        [cast]
//   output      [===============]                             [=]
//   reader                      [mm]                             [mm]
//
// fixed: delays a node if it reads variables and constants only. dynamic: delays a node if the
// longest life of its inputs exceeds the shortest life of its outputs. A node without inputs makes
// a constant, which both rules delay.
#include "csrc/offline/order/long_life.h"

#include <algorithm>

namespace recoup::detail {
namespace {

bool may_wait(const OrderGraph& graph, LongLife rule, const StepLives& lives,
              const OrderNode& node) {
  if (node.makes.empty()) {
    return false;
  }
  // The storages of `makes` are the last ones of `uses`.
  const auto inputs = std::span(node.uses).first(node.uses.size() - node.makes.size());
  if (rule == LongLife::kFixed) {
    return std::all_of(inputs.begin(), inputs.end(), [&](std::uint32_t storage) {
      return lives.is_lasting(storage) || !graph.storages[storage].is_made;
    });
  }
  std::uint32_t longest = 0;
  for (const std::uint32_t storage : inputs) {
    longest = std::max(longest, lives.length(storage));
  }
  std::uint32_t shortest = lives.length(node.makes.front());
  for (const std::uint32_t storage : node.makes) {
    shortest = std::min(shortest, lives.length(storage));
  }
  return inputs.empty() || longest > shortest;
}

}  // namespace

std::int64_t delay_long_lived_readers(const OrderGraph& graph, LongLife rule, StepLives& lives) {
  if (rule == LongLife::kNone) {
    return 0;
  }
  std::int64_t moves = 0;
  // Backwards, so that the dependents of a node have moved before the node does.
  for (auto at = static_cast<std::uint32_t>(lives.order().size()); at-- > 0;) {
    const OrderNode& node = graph.nodes[lives.order()[at]];
    auto first = static_cast<std::uint32_t>(lives.order().size());
    for (const std::uint32_t after : node.after) {
      first = std::min(first, lives.position(after));
    }
    if (node.after.empty() || first == at + 1 || !may_wait(graph, rule, lives, node)) {
      continue;
    }
    const Bytes before = lives.most(at, first);
    lives.move(at, first - 1);
    if (lives.most(at, first) > before) {
      lives.move(first - 1, at);
    } else {
      ++moves;
    }
  }
  return moves;
}

}  // namespace recoup::detail
