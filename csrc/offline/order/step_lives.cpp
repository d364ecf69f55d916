#include "csrc/offline/order/step_lives.h"

#include <algorithm>

namespace recoup::detail {

StepLives::StepLives(const OrderGraph& graph, std::uint32_t step, std::vector<std::uint32_t> order)
    : graph_(graph),
      number_(step),
      step_(graph.steps[step]),
      order_(std::move(order)),
      position_(order_.size()),
      live_(order_.size()) {
  for (std::uint32_t at = 0; at < order_.size(); ++at) {
    position_[order_[at] - step_.begin] = at;
  }
  Bytes live = step_.idle;
  for (const std::uint32_t node : order_) {
    for (const std::uint32_t storage : graph_.nodes[node].uses) {
      Use& use = uses_.try_emplace(storage, Use{.first = node, .last = node}).first->second;
      use.last = node;
      live += enters(storage) && use.first == node ? graph_.storages[storage].size : Bytes(0);
    }
  }
  count(0, order_.size(), live);
}

Bytes StepLives::most(std::size_t from, std::size_t to) const {
  Bytes most{0};
  for (std::size_t at = from; at < to; ++at) {
    most = std::max(most, live_[at]);
  }
  return most;
}

std::uint32_t StepLives::length(std::uint32_t storage) const {
  const Use use = uses_.at(storage);
  const std::uint32_t begin = enters(storage) ? 0 : position(use.first);
  const std::uint32_t end =
      stays(storage) ? static_cast<std::uint32_t>(order_.size()) : position(use.last) + 1;
  return end - begin;
}

void StepLives::move(std::uint32_t from, std::uint32_t to) {
  const std::uint32_t low = std::min(from, to);
  const std::uint32_t high = std::max(from, to) + 1;
  // The bytes that live before the window do not depend on the order within it.
  Bytes live = live_[low] - graph_.nodes[order_[low]].workspace;
  for (const std::uint32_t storage : graph_.nodes[order_[low]].uses) {
    if (!enters(storage) && uses_.at(storage).first == order_[low]) {
      live -= graph_.storages[storage].size;
    }
  }
  const auto begin = order_.begin();
  if (from < to) {
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  } else {
    std::rotate(begin + to, begin + from, begin + from + 1);
  }
  for (std::uint32_t at = low; at < high; ++at) {
    position_[order_[at] - step_.begin] = at;
  }
  find_uses(order_[to]);
  count(low, high, live);
}

// Recomputes the first and the last use of the storages that a moved node uses.
void StepLives::find_uses(std::uint32_t node) {
  for (const std::uint32_t storage : graph_.nodes[node].uses) {
    const std::vector<std::uint32_t>& users = graph_.storages[storage].users;
    Use use{.first = node, .last = node};
    for (auto user = std::lower_bound(users.begin(), users.end(), step_.begin);
         user != users.end() && *user < step_.end; ++user) {
      use.first = position(*user) < position(use.first) ? *user : use.first;
      use.last = position(*user) > position(use.last) ? *user : use.last;
    }
    uses_.at(storage) = use;
  }
}

// `live`: the bytes of storages that live before the first of the positions [from, to).
void StepLives::count(std::size_t from, std::size_t to, Bytes live) {
  for (std::size_t at = from; at < to; ++at) {
    const OrderNode& node = graph_.nodes[order_[at]];
    Bytes ended{0};
    for (const std::uint32_t storage : node.uses) {
      const Use use = uses_.at(storage);
      const Bytes size = graph_.storages[storage].size;
      live += !enters(storage) && use.first == order_[at] ? size : Bytes(0);
      ended += !stays(storage) && use.last == order_[at] ? size : Bytes(0);
    }
    live_[at] = live + node.workspace;
    live -= ended;
  }
}

}  // namespace recoup::detail
