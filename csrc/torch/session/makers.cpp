#include "csrc/torch/session/makers.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <limits>

namespace recoup::detail {
namespace {

struct Entered {
  std::uint32_t module;
  bool optimizer;
  const torch::autograd::Node* within;  // the node that ran when it was entered; null: none
};

thread_local std::vector<Entered> entered;

// Capacity per thread; nodes of older graphs have no place.
constexpr std::size_t kMostPlaces = 1 << 20;

}  // namespace

std::size_t enter_module(std::uint32_t module, bool optimizer) {
  const std::size_t depth = entered.size();
  const auto node = torch::autograd::get_current_node();
  entered.push_back({.module = module, .optimizer = optimizer, .within = node.get()});
  return depth;
}

void leave_module(std::size_t depth) {
  if (entered.size() > depth) {
    entered.erase(entered.begin() + static_cast<std::ptrdiff_t>(depth), entered.end());
  }
}

MakerId Makers::running(std::string_view op, std::uint32_t line) {
  Place here{.line = line};
  if (!entered.empty()) {
    here.module = entered.back().module;
    here.phase = entered.back().optimizer ? Phase::kOptimizer : Phase::kForward;
  }
  const auto node = torch::autograd::get_current_node();
  if (node && (entered.empty() || entered.back().within != node.get())) {
    here = place_of_node(node->thread_id(), node->sequence_nr());
    here.phase = Phase::kBackward;
  } else {
    note_nodes(here);
  }
  const auto found = ids_.find(Key{op, here});
  return found != ids_.end() ? found->second : add({op, here});
}

MakerId Makers::add(const Key& key) {
  const MakerId id(static_cast<std::uint32_t>(makers_.size()));
  makers_.push_back({.op = std::string(key.op),
                     .module = key.place.module,
                     .line = key.place.line,
                     .phase = key.place.phase});
  ids_.emplace(Key{makers_.back().op, key.place}, id);
  return id;
}

// The nodes that were made between the last op and this one belong to this one.
void Makers::note_nodes(const Place& place) {
  const std::uint64_t next = at::sequence_number::peek();
  Nodes& nodes = nodes_[at::RecordFunction::currentThreadId()];
  if (next <= nodes.next) {
    return;
  }
  if (nodes.places.empty()) {
    nodes.next = next - 1;  // earlier nodes were made before the scope
  }
  if (nodes.places.empty() || nodes.places.back().second != place) {
    if (nodes.places.size() == kMostPlaces) {
      nodes.places.erase(nodes.places.begin(),
                         nodes.places.begin() + static_cast<std::ptrdiff_t>(kMostPlaces / 2));
    }
    nodes.places.emplace_back(nodes.next, place);
  }
  nodes.next = next;
}

Makers::Place Makers::place_of_node(std::uint64_t thread, std::uint64_t number) const {
  const auto found = nodes_.find(thread);
  // The nodes that accumulate gradients have the largest possible number: they belong to no op.
  if (found == nodes_.end() || number >= found->second.next) {
    return {};
  }
  const auto& places = found->second.places;
  const auto after = std::upper_bound(
      places.begin(), places.end(), number,
      [](std::uint64_t wanted, const auto& place) { return wanted < place.first; });
  return after == places.begin() ? Place{} : std::prev(after)->second;
}

}  // namespace recoup::detail
