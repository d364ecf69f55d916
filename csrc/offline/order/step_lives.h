// StepLives: an order of the nodes of one step, and the bytes that are live at each of them.
//
//   storage  enters the step     x========]      lives from the step's start to its last use
//            is made in it          [=====]      from its maker to its last use
//            stays beyond it          [=======x  to the step's end
//            is idle             x============x  throughout, and no node uses it
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/offline/order/order_graph.h"

namespace recoup::detail {

class StepLives {
 public:
  // `order` must hold all nodes of the step.
  StepLives(const OrderGraph& graph, std::uint32_t step, std::vector<std::uint32_t> order);

  [[nodiscard]] std::span<const std::uint32_t> order() const { return order_; }
  [[nodiscard]] std::uint32_t position(std::uint32_t node) const {
    return position_[node - step_.begin];
  }
  // The maximum of live bytes over the positions [from, to).
  [[nodiscard]] Bytes most(std::size_t from, std::size_t to) const;
  [[nodiscard]] Bytes most() const { return most(0, order_.size()); }
  // The number of nodes during which it is live.
  [[nodiscard]] std::uint32_t length(std::uint32_t storage) const;
  // Whether it lives throughout the step.
  [[nodiscard]] bool is_lasting(std::uint32_t storage) const {
    return enters(storage) && stays(storage);
  }

  // Moves the node at position `from` to `to`; the nodes between shift by one.
  void move(std::uint32_t from, std::uint32_t to);

 private:
  // The first and the last node of the step that use a storage.
  struct Use {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };

  // A storage from outside exists before its step: no order can delay it.
  [[nodiscard]] bool enters(std::uint32_t storage) const {
    return graph_.storages[storage].first_step < number_ || !graph_.storages[storage].is_made;
  }
  [[nodiscard]] bool stays(std::uint32_t storage) const {
    return graph_.storages[storage].last_step > number_;
  }
  void find_uses(std::uint32_t node);
  void count(std::size_t from, std::size_t to, Bytes live);

  const OrderGraph& graph_;
  std::uint32_t number_;
  const OrderStep& step_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> position_;          // by node - step_.begin
  std::vector<Bytes> live_;                      // by position
  std::unordered_map<std::uint32_t, Use> uses_;  // by storage
};

}  // namespace recoup::detail
