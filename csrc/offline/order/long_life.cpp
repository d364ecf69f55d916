// Where what a node reads lives long anyway, the node can wait: then what it makes lives shorter.
//
//   weight  x==========================x        x==========================x
//   node        [cast]                                        [cast]
//   output      [===============]                             [=]
//   reader                      [mm]                             [mm]
//
// fixed: all that the node reads is a variable or a constant. dynamic: the longest life of what it
// reads is longer than the shortest life of what it makes. A node that reads nothing makes a
// constant, which both rules move.
#include "csrc/offline/order/long_life.h"

#include <algorithm>

namespace recoup::detail {
namespace {

bool may_wait(const OrderGraph& graph, LongLife rule, const StepLives& lives,
              const OrderNode& node) {
  if (node.makes.empty()) {
    return false;
  }
  // `makes` are at the end of `uses`.
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

std::int64_t move_behind_long_lives(const OrderGraph& graph, LongLife rule, StepLives& lives) {
  if (rule == LongLife::kNone) {
    return 0;
  }
  std::int64_t moves = 0;
  // From the end: when a node moves, those that wait for it have moved already.
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
