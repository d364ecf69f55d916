// Coop: evicts neighbors in the pool together, so that the freed bytes form one block. A value
// costs c / s, whatever its size, where c includes its neighborhood by union-find. The cheapest
// window is evicted.
//
// `coop-move` includes values in a window that cannot be evicted but can be moved: see price_moves.
#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "csrc/policy/registry.h"
#include "csrc/policy/terms.h"
#include "csrc/policy/window.h"
#include "recoup/policy.h"

namespace recoup::detail {
namespace {

// If a large enough block is free, only the budget lacks bytes: memory outside the pool uses them.
bool has_place(std::span<const PoolBlock> blocks, Bytes size) {
  return size == Bytes(0) ||
         std::any_of(blocks.begin(), blocks.end(),
                     [size](const PoolBlock& block) { return block.free && block.size >= size; });
}

class Coop final : public EvictionPolicy {
 public:
  Coop(const PolicyOptions& options, bool moves) : chain_cost_(options.chain_cost), moves_(moves) {}
  [[nodiscard]] std::string_view name() const noexcept override {
    return moves_ ? "coop-move" : "coop";
  }
  [[nodiscard]] PolicyNeeds needs() const noexcept override {
    return {.equivalence = true, .blocks = true, .inputs = chain_cost_, .moves = moves_};
  }

 private:
  Victims do_plan(const PolicyView& view, const RoomRequest& request) override;
  void look_at_all(const PolicyView& view, std::span<const PoolBlock> blocks);
  void price_moves(std::span<const PoolBlock> blocks);
  void add_chains(const PolicyView& view);
  [[nodiscard]] ValueId cheapest_by_bytes() const;

  bool chain_cost_;
  bool moves_;
  WindowSearch search_;
  // Buffers of the running plan; kept to reuse their memory.
  std::vector<Candidate> candidates_;
  std::vector<std::size_t> positions_;  // position of each candidate's block
  std::vector<double> costs_;           // cost of each block
  std::vector<PairCost> chains_;
  double total_cost_ = 0;  // of all candidates: sum of c
  double total_wait_ = 0;  // sum of c * s
};

void Coop::look_at_all(const PolicyView& view, std::span<const PoolBlock> blocks) {
  const Tick now = view.now();
  const std::size_t count = view.candidate_count();
  candidates_.resize(count);
  positions_.resize(count);
  costs_.assign(blocks.size(), std::numeric_limits<double>::infinity());
  total_cost_ = total_wait_ = 0;
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    if (blocks[at].free) {
      costs_[at] = 0;
    } else if (const std::uint32_t index = blocks[at].candidate; index != PoolBlock::kNone) {
      const Candidate candidate = view.candidate(index);
      const double cost =
          nanoseconds(candidate.own_cost) +
          nanoseconds(view.neighborhood_cost(candidate.id, Neighborhood::kEquivalence));
      const double age = staleness(candidate, now);
      costs_[at] = cost / age;
      total_cost_ += cost;
      total_wait_ += cost * age;
      candidates_[index] = candidate;
      positions_[index] = at;
    }
  }
  work_.scored += static_cast<std::int64_t>(count);
}

// A move takes time at once. A replay takes time only if the value is used again, which is the less
// likely the staler it is, so c / s is not a time. To compare them, the time of a move is divided
// by the mean staleness of all candidates, weighted by their costs: a move counts as a replay of
// the same time of a value of mean age.
void Coop::price_moves(std::span<const PoolBlock> blocks) {
  const double age = total_cost_ > 0 ? total_wait_ / total_cost_ : 1;
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    if (blocks[at].move_cost != Candidate::kNever && blocks[at].candidate == PoolBlock::kNone) {
      costs_[at] = nanoseconds(blocks[at].move_cost) / age;
    }
  }
}

// If one of two values was computed from the other, then restoring it restores the other one, too.
void Coop::add_chains(const PolicyView& view) {
  const Tick now = view.now();
  for (std::size_t index = 0; index < candidates_.size(); ++index) {
    for (std::uint32_t input : view.inputs(index)) {
      const auto [low, high] = std::minmax(positions_[index], positions_[input]);
      chains_.push_back(
          {.low = low,
           .high = high,
           .cost = nanoseconds(candidates_[input].own_cost) / staleness(candidates_[index], now)});
    }
  }
}

// The value with the least cost per byte: no set of values has a lower cost per byte.
ValueId Coop::cheapest_by_bytes() const {
  std::size_t best = 0;
  const auto key = [this](std::size_t index) {
    const Candidate& candidate = candidates_[index];
    return std::tuple(costs_[positions_[index]] / bytes(candidate), -candidate.size.count(),
                      candidate.id);
  };
  for (std::size_t index = 1; index < candidates_.size(); ++index) {
    if (key(index) < key(best)) {
      best = index;
    }
  }
  return candidates_[best].id;
}

Victims Coop::do_plan(const PolicyView& view, const RoomRequest& request) {
  const std::span<const PoolBlock> blocks = view.blocks();
  look_at_all(view, blocks);
  if (candidates_.empty()) {
    return {};
  }
  chains_.clear();
  if (chain_cost_) {
    add_chains(view);
  }
  if (moves_) {
    price_moves(blocks);
  }
  if (!has_place(blocks, request.size)) {
    if (const auto window = search_.cheapest(blocks, costs_, chains_, request)) {
      Victims plan;
      for (const PoolBlock& block : blocks.subspan(window->begin, window->end - window->begin)) {
        if (block.candidate != PoolBlock::kNone) {
          plan.victims.push_back(candidates_[block.candidate].id);
        }
      }
      return plan;
    }
  }
  // Either contiguity does not matter, or immovable blocks divide the pool into blocks that are too
  // small. In the latter case the engine moves the remaining values together.
  return {.victims = {cheapest_by_bytes()}};
}

}  // namespace

std::span<const PolicyInfo> coop_policies() {
  static constexpr PolicyInfo kPolicies[] = {
      {.name = "coop",
       .summary = "the cheapest adjacent values in the pool that make enough room (Coop)",
       .defaults = kSimulator,
       .make = [](const PolicyOptions& options) -> std::unique_ptr<EvictionPolicy> {
         return std::make_unique<Coop>(options, false);
       }},
      {.name = "coop-move",
       .summary = "as coop, but moves values that cannot be evicted out of the way",
       .defaults = kSimulator,
       .make = [](const PolicyOptions& options) -> std::unique_ptr<EvictionPolicy> {
         return std::make_unique<Coop>(options, true);
       }},
  };
  return kPolicies;
}

}  // namespace recoup::detail
