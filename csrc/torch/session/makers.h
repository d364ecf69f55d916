// Makers: which op runs, in which module, on which line of the program.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recoup/attribution.h"

namespace recoup::detail {

// The thread enters the forward pass of a module, or a step of an optimizer. Returns the depth for
// leave_module: the number of modules that it was in before.
std::size_t enter_module(std::uint32_t module, bool optimizer);
// Reduces the thread's modules to the first `depth`, however the others ended.
void leave_module(std::size_t depth);

// Note [Who runs an op]
// In a forward pass an op is attributed to the innermost module that the thread is in. Autograd
// numbers its nodes on each thread in the order in which the forward pass made them, so a node's
// number tells between which ops it was made. An op that runs within a node, in backward, is
// attributed to the module and line of the op for which the node was made. A module that is entered
// within a node runs a forward pass again, as checkpoints do; its ops are attributed to that
// module.
class Makers {
 public:
  // Id for the op that this thread is about to run. `line`: the program's current line.
  MakerId running(std::string_view op, std::uint32_t line);
  // Maker::kNone: outside of all modules.
  [[nodiscard]] std::uint32_t module_of(MakerId id) const { return makers_[id.index()].module; }
  // Indexed by MakerId.
  [[nodiscard]] std::vector<Maker> all() const { return {makers_.begin(), makers_.end()}; }

 private:
  struct Place {
    std::uint32_t module = Maker::kNone;
    std::uint32_t line = Maker::kNone;
    Phase phase = Phase::kForward;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Key {
    std::string_view op;
    Place place;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // The nodes that a thread has made: the first number of each sequence of nodes with equal places.
  struct Nodes {
    std::uint64_t next = 0;
    std::vector<std::pair<std::uint64_t, Place>> places;
  };
  [[nodiscard]] Place place_of_node(std::uint64_t thread, std::uint64_t number) const;
  void note_nodes(const Place& place);
  MakerId add(const Key& key);

  std::deque<Maker> makers_;  // a deque: ids_ refers to its elements
  std::map<Key, MakerId> ids_;
  std::unordered_map<std::uint64_t, Nodes> nodes_;
};

}  // namespace recoup::detail
