#include "csrc/steps/evict/block_planner.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "csrc/steps/evict/cancelled.h"
#include "csrc/steps/place/step_layout.h"

namespace recoup::detail {
namespace {

// The smallest budget in which evictions are chosen, in percent of the actual one.
constexpr int kLeastPercent = 92;
// Limit of a search for a layout: its nodes times its items. About 0.1 seconds.
constexpr std::int64_t kMostWork = 12'000'000;

// The lives of a trial, with the roles of those from before the step.
StepBlocks blocks_of(const RecordedStep& step, const TrialBlocks& trial) {
  StepBlocks blocks{.lives = trial.log.lives(),
                    .before = {},
                    .sections = trial.log.sections(),
                    .end = step.end,
                    .alignment = step.options.alignment};
  blocks.before.resize(trial.before.size());
  std::multimap<BlockKind, std::uint32_t> at_end;
  for (std::size_t life = trial.before.size(); life < blocks.lives.size(); ++life) {
    if (const std::optional<Made>& maker = trial.makers[life]) {
      at_end.emplace(BlockKind::of(blocks.lives[life].size, {}, maker),
                     static_cast<std::uint32_t>(life));
    }
  }
  for (std::size_t k = 0; k < trial.before.size(); ++k) {
    StepBlocks::Before& before = blocks.before[trial.before[k]];
    const auto& place = step.pool.blocks[k];
    before.at = place ? std::optional(place->offset) : std::nullopt;
    before.fixed = step.blocks[k].fixed;
    const auto successor = at_end.find(step.blocks[k].kind);
    if (!blocks.lives[trial.before[k]].survives() && successor != at_end.end()) {
      before.successor = successor->second;
      at_end.erase(successor);
    }
  }
  return blocks;
}

}  // namespace

std::optional<BlockPlanner::Found> BlockPlanner::plan(std::span<const ScoreSearch::Found> scores,
                                                      std::int64_t work, Nanoseconds most) {
  std::optional<Found> best;
  const auto consider = [&](std::span<const ScoreSearch::Found> some, Bytes budget) {
    for (const ScoreSearch::Found& each : some) {
      std::optional<Found> found = place(each.score, budget, best ? best->result.cost : most);
      if (found) {
        best = std::move(found);
      }
    }
  };
  if (!trial_.step().has_places) {
    return std::nullopt;
  }
  consider(scores, trial_.budget());
  for (int percent = 99; percent >= kLeastPercent && !best; --percent) {
    const Bytes budget(trial_.budget().count() / 100 * percent);
    if (!trial_.possible(budget)) {
      break;
    }
    ScoreSearch search(trial_, Addresses::kIgnored, work, budget);
    const std::vector<ScoreSearch::Found> trail = search.run(scores);
    consider(ScoreSearch::best_of(trail), budget);
  }
  return best;
}

std::optional<BlockPlanner::Found> BlockPlanner::place(const StepScore& score, Bytes budget,
                                                       Nanoseconds most) {
  const RecordedStep& step = trial_.step();
  TrialBlocks trial;
  const TrialResult by_bytes = trial_.run(score, {.budget = budget, .most = most}, trial);
  if (!by_bytes.fits || by_bytes.cost >= most) {
    return std::nullopt;
  }
  const StepBlocks blocks = blocks_of(step, trial);
  const auto lives = std::ssize(blocks.lives);
  const std::optional<std::vector<PlannedPlace>> places =
      lay_out(blocks, kMostWork / std::max<std::int64_t>(lives, 1), [this] { check(); });
  if (!places) {
    return std::nullopt;
  }
  Found found;
  StartingPool pool{.blocks = step.pool.blocks, .others = {}};
  for (std::size_t k = 0; k < trial.before.size(); ++k) {
    const PlannedPlace& place = (*places)[trial.before[k]];
    found.plan.starts.push_back({.kind = step.blocks[k].kind, .place = place});
    const bool placed = pool.blocks[k] && pool.blocks[k]->placed;
    pool.blocks[k] = {
        .offset = place.at, .size = blocks.lives[trial.before[k]].size, .placed = placed};
  }
  for (std::size_t life = trial.before.size(); life < blocks.lives.size(); ++life) {
    const BlockLog::Life& each = blocks.lives[life];
    found.plan.entries.push_back({.ops = each.ops,
                                  .evictions = each.evictions,
                                  .size = each.size,
                                  .place = (*places)[life]});
  }
  found.result = trial_.run(by_bytes.done, found.plan, pool);
  found.result.cost += cost_of_alternating(blocks, *places);
  if (!found.result.fits || found.result.elsewhere > 0 || found.result.cost >= most) {
    return std::nullopt;
  }
  found.result.done = by_bytes.done;
  return found;
}

// The price of the moves at the beginning of each run.
Nanoseconds BlockPlanner::cost_of_alternating(const StepBlocks& blocks,
                                              std::span<const PlannedPlace> places) const {
  MovePrice price;
  price.ns_per_byte = trial_.step().options.move_ns_per_byte.value_or(price.ns_per_byte);
  std::size_t moves = 0;
  Bytes moved{0};
  for (std::size_t life = 0; life < blocks.before.size(); ++life) {
    if (alternates(blocks, life) && places[life].other == places[life].at) {
      ++moves;
      moved += blocks.lives[life].size;
    }
  }
  return price.of(moves, moved);
}

void BlockPlanner::check() const {
  if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
    throw PlanCancelled();
  }
}

}  // namespace recoup::detail
