#include "csrc/offline/dtr/neighborhood.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace recoup::detail {
namespace {

class NoNeighborhood final : public DtrNeighborhood {
 public:
  Nanoseconds cost(DtrStorageId /*id*/) override { return Nanoseconds(0); }
};

// The evicted ancestors, and optionally descendants, that are reachable through evicted storages
// only. A storage that is both counts twice. A sum is cached until a storage that it reaches
// changes.
class ReachableNeighborhood final : public DtrNeighborhood {
 public:
  ReachableNeighborhood(const DtrState& state, bool descendants)
      : state_(state),
        descendants_(descendants),
        sums_(state.storages.size()),
        marks_(state.storages.size()) {}

  void on_ask(DtrStorageId id) override { forget(id); }
  void on_evict(DtrStorageId id) override { forget(id); }
  void on_return(DtrStorageId id) override { forget(id); }

  Nanoseconds cost(DtrStorageId id) override {
    std::optional<Nanoseconds>& sum = sums_[id.index()];
    if (!sum) {
      sum = Nanoseconds(0);
      const auto add = [&](DtrStorageId found) {
        sum = *sum + (state_[found].resident ? Nanoseconds(0) : state_[found].cost);
      };
      reach(id, &DtrStorage::parents, add);
      if (descendants_) {
        reach(id, &DtrStorage::children, add);
      }
    }
    return *sum;
  }

 private:
  // Resets the sums of all storages that reach `id`. They are found by a search from `id` in the
  // opposite direction.
  void forget(DtrStorageId id) {
    sums_[id.index()].reset();
    const auto reset = [&](DtrStorageId found) { sums_[found.index()].reset(); };
    reach(id, &DtrStorage::children, reset);
    if (descendants_) {
      reach(id, &DtrStorage::parents, reset);
    }
  }

  // Calls function(storage) once for each storage that is reachable through evicted storages.
  template <class Function>
  void reach(DtrStorageId start, std::vector<DtrNeighbor> DtrStorage::* direction,
             Function&& function) {
    ++mark_;
    stack_.assign({start});
    while (!stack_.empty()) {
      const DtrStorageId id = stack_.back();
      stack_.pop_back();
      state_.for_each(state_.program[id].*direction, [&](DtrStorageId found) {
        if (marks_[found.index()] != mark_) {
          marks_[found.index()] = mark_;
          function(found);
          if (!state_[found].resident) {
            stack_.push_back(found);
          }
        }
      });
    }
  }

  const DtrState& state_;
  bool descendants_;
  std::vector<std::optional<Nanoseconds>> sums_;  // by storage; used for resident storages
  std::vector<std::uint64_t> marks_;
  std::uint64_t mark_ = 0;
  std::vector<DtrStorageId> stack_;
};

// Undirected components of evicted storages, by union-find (appendix C.2 of the paper). Components
// are never split: when a storage becomes resident again, only its cost is subtracted.
class ComponentNeighborhood final : public DtrNeighborhood {
 public:
  explicit ComponentNeighborhood(const DtrState& state)
      : state_(state), node_of_(state.storages.size()) {
    for (std::size_t& node : node_of_) {
      node = add_node(Nanoseconds(0));  // not computed yet: no cost, but connects its neighbors
    }
  }

  void on_evict(DtrStorageId id) override {
    const std::size_t node = add_node(state_[id].cost);
    node_of_[id.index()] = node;
    for_each_root(id, [&](std::size_t root) {
      if (root != node) {
        nodes_[root].parent = node;
        nodes_[node].cost += nodes_[root].cost;
      }
    });
  }

  // Views that were requested since the eviction have raised the cost, so this may subtract more
  // than on_evict() added.
  void on_return(DtrStorageId id) override {
    nodes_[find(node_of_[id.index()])].cost -= state_[id].cost;
  }

  Nanoseconds cost(DtrStorageId id) override {
    ++mark_;
    Nanoseconds sum{0};
    for_each_root(id, [&](std::size_t root) {
      if (nodes_[root].mark != mark_) {
        nodes_[root].mark = mark_;
        sum += nodes_[root].cost;
      }
    });
    return sum;
  }

 private:
  struct Node {
    std::size_t parent;  // its own index if it is a root
    Nanoseconds cost;    // of the whole component; valid at a root
    std::uint64_t mark = 0;
  };

  std::size_t add_node(Nanoseconds cost) {
    nodes_.push_back({.parent = nodes_.size(), .cost = cost});
    return nodes_.size() - 1;
  }

  std::size_t find(std::size_t node) {
    while (nodes_[node].parent != node) {
      nodes_[node].parent = nodes_[nodes_[node].parent].parent;
      node = nodes_[node].parent;
    }
    return node;
  }

  template <class Function>
  void for_each_root(DtrStorageId id, Function&& function) {
    const auto visit = [&](DtrStorageId found) {
      if (!state_[found].resident) {
        function(find(node_of_[found.index()]));
      }
    };
    state_.for_each(state_.program[id].parents, visit);
    state_.for_each(state_.program[id].children, visit);
  }

  const DtrState& state_;
  std::vector<std::size_t> node_of_;  // by storage; meaningless while the storage is resident
  std::vector<Node> nodes_;
  std::uint64_t mark_ = 0;
};

}  // namespace

std::unique_ptr<DtrNeighborhood> make_neighborhood(DtrScore::Cost cost, const DtrState& state) {
  switch (cost) {
    case DtrScore::Cost::kAncestors:
      return std::make_unique<ReachableNeighborhood>(state, false);
    case DtrScore::Cost::kExact:
      return std::make_unique<ReachableNeighborhood>(state, true);
    case DtrScore::Cost::kEquivalence:
      return std::make_unique<ComponentNeighborhood>(state);
    case DtrScore::Cost::kNone:
    case DtrScore::Cost::kLocal:
      break;
  }
  return std::make_unique<NoNeighborhood>();
}

}  // namespace recoup::detail
