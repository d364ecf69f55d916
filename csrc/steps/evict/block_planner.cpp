#include "csrc/steps/evict/block_planner.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "csrc/steps/place/step_layout.h"
#include "csrc/steps/trial/cancelled.h"

namespace recoup::detail {
namespace {

// Limit of runs until one ends with the values spilled with which it began. From run kUnited on a
// run begins with the values spilled with which the one before it began or ended.
constexpr int kMostRuns = 8;
constexpr int kUnited = kMostRuns / 2;
// Limit of runs until one allocates what the one before it did.
constexpr int kMostEarlyRuns = 4;
// The smaller budgets in which evictions are chosen, in thousandths of the actual one.
constexpr std::array kBudgets = {995, 990, 980, 970, 960, 940, 920};
// Smaller budgets are not tried if a layout was found whose evictions cost at most this multiple of
// what the best evictions cost in the budget before.
constexpr double kGoodEnough = 1.03;
// Number of smaller budgets that are tried after a layout was found, unless that one is as good.
constexpr int kMoreBudgets = 2;
// Limit of a search for a layout: its nodes times its items. About 0.1 seconds.
constexpr std::int64_t kMostWork = 12'000'000;
// Limit of its nodes for each item, so that short steps are planned fast.
constexpr std::int64_t kMostNodesPerItem = 50;

// The number of blocks that are taken when the step begins.
std::size_t number_before(const TrialBlocks& trial) {
  return trial.before.size() -
         static_cast<std::size_t>(std::ranges::count(trial.before, TrialBlocks::kNone));
}

// The lives of a trial, with the roles of those from before the step.
StepBlocks blocks_of(const RecordedStep& step, const TrialBlocks& trial) {
  StepBlocks blocks{.lives = trial.log.lives(),
                    .before = {},
                    .sections = trial.log.sections(),
                    .end = step.end,
                    .alignment = step.options.alignment};
  const std::size_t first = number_before(trial);
  blocks.before.resize(first);
  std::multimap<BlockKind, std::uint32_t> at_end;
  for (std::size_t life = first; life < blocks.lives.size(); ++life) {
    if (const BlockKind& kind = trial.kinds[life]; kind.op > 0 || kind.storage > 0) {
      at_end.emplace(kind, static_cast<std::uint32_t>(life));
    }
  }
  for (std::size_t k = 0; k < trial.before.size(); ++k) {
    if (trial.before[k] == TrialBlocks::kNone) {
      continue;
    }
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

// Values that are spilled in `a` or in `b`.
std::vector<bool> united(const TierContent& a, const TierContent& b, std::size_t size) {
  std::vector<bool> spilled(size);
  for (std::size_t k = 0; k < size; ++k) {
    spilled[k] = a.is_spilled(k) || b.is_spilled(k);
  }
  return spilled;
}

// A place that no other block has, for each life.
std::vector<PlannedPlace> apart(const TrialBlocks& trial) {
  std::vector<PlannedPlace> places;
  PoolOffset next{0};
  for (const BlockLog::Life& life : trial.log.lives()) {
    places.push_back({.at = next, .other = next});
    next += life.size;
  }
  return places;
}

}  // namespace

void BlockPlanner::Run::take(EvictionList done) {
  list = std::move(done);
  for (const BlockLog::Life& life : blocks.log.lives()) {
    evictions.push_back(life.evictions);
  }
}

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
  double least = scores.empty() ? 0 : scores.back().cost;
  int more = kMoreBudgets;
  for (const int part : kBudgets) {
    const Bytes budget(trial_.budget().count() / 1000 * part);
    const bool good = best && static_cast<double>(best->result.cost.count()) <= kGoodEnough * least;
    if (good || (best && more-- == 0) || !trial_.possible(budget)) {
      break;
    }
    ScoreSearch search(trial_, Addresses::kIgnored, work, budget);
    const std::vector<ScoreSearch::Found> trail = search.run(scores);
    least = trail.back().cost;
    consider(ScoreSearch::best_of(trail), budget);
  }
  return best;
}

std::optional<BlockPlanner::Found> BlockPlanner::place(const StepScore& score, Bytes budget,
                                                       Nanoseconds most) {
  std::optional<Run> run = run_by_bytes(score, {.budget = budget, .most = most});
  if (!run) {
    return std::nullopt;
  }
  std::optional<Found> found = place_early(*run, {.budget = budget, .most = most});
  return found ? std::move(found) : place_run(*run, most);
}

// Runs of a step with a spill tier are repeated until one ends with the values spilled with which
// it began, because the next run begins there. If they do not come to that, one may end with fewer:
// the others are evicted when the next run begins.
std::optional<BlockPlanner::Run> BlockPlanner::run_by_bytes(const StepScore& score,
                                                            const TrialLimits& limits) {
  StepScore next = score;
  for (int n = 0; n < kMostRuns; ++n) {
    Run run{.tier = next.tier.value_or(trial_.step().pool.tier)};
    TrialResult result = trial_.run(next, limits, run.blocks);
    if (!result.fits || result.cost >= limits.most) {
      return std::nullopt;
    }
    run.take(result.done);
    if (!trial_.has_tier() || result.tier == run.tier) {
      return run;
    }
    if (n + 1 >= kUnited) {
      result.tier.spilled = united(run.tier, result.tier, trial_.step().blocks.size());
      if (n >= kUnited && result.tier.spilled == run.tier.spilled) {
        return run;
      }
    }
    next.tier = std::move(result.tier);
    next.writes = std::move(result.done);
  }
  return std::nullopt;
}

// Values are evicted when they are no longer used instead of when bytes are short: the shorter the
// lives, the more layouts. What an evicted value is computed from then lives longer, so the lives
// are those of another run, and that run is repeated until it allocates as planned.
std::optional<BlockPlanner::Found> BlockPlanner::place_early(const Run& lazy,
                                                             const TrialLimits& limits) {
  Run planned = lazy;
  planned.list = lazy.blocks.early;
  planned.evictions = lazy.blocks.early_before;
  for (int n = 0; n < kMostEarlyRuns; ++n) {
    Run early{.tier = lazy.tier};
    const std::vector<PlannedPlace> places = apart(planned.blocks);
    const BlockPlan plan = plan_of(planned.blocks, places, planned.evictions);
    TrialResult result =
        trial_.run(planned.list, plan, pool_of(planned, places), limits, &early.blocks);
    if (!result.fits || result.cost >= limits.most) {
      return std::nullopt;
    }
    early.take(std::move(result.done));
    if (result.elsewhere == 0) {
      return place_run(early, limits.most);
    }
    planned = std::move(early);
  }
  return std::nullopt;
}

std::optional<BlockPlanner::Found> BlockPlanner::place_run(const Run& run, Nanoseconds most) {
  const StepBlocks blocks = blocks_of(trial_.step(), run.blocks);
  const auto items = std::max<std::int64_t>(std::ssize(blocks.lives), 1);
  const std::int64_t nodes = std::min(kMostNodesPerItem * items, kMostWork / items);
  const std::optional<std::vector<PlannedPlace>> places =
      lay_out(blocks, nodes, [this] { check(); });
  if (!places) {
    return std::nullopt;
  }
  Found found;
  found.plan = plan_of(run.blocks, *places, run.evictions);
  found.result = trial_.run(run.list, found.plan, pool_after(run, blocks, *places),
                            {.budget = trial_.budget(), .most = most});
  found.result.cost += std::max(Nanoseconds(0), found.result.closing);
  if (!found.result.fits || found.result.elsewhere > 0 || found.result.cost >= most) {
    return std::nullopt;
  }
  found.result.done = run.list;
  return found;
}

// The pool in which a run with these places ends, where the next one begins. A block that no other
// replaces lies where it is, or anywhere.
StartingPool BlockPlanner::pool_after(const Run& run, const StepBlocks& blocks,
                                      std::span<const PlannedPlace> places) const {
  StartingPool pool = pool_of(run, places);
  const auto overlap = [](const StartingPool::Place& a, const StartingPool::Place& b) {
    return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
  };
  std::vector<StartingPool::Place> taken;
  std::vector<std::size_t> others;
  for (std::size_t k = 0; k < run.blocks.before.size(); ++k) {
    const std::size_t life = run.blocks.before[k];
    if (life == TrialBlocks::kNone) {
      continue;
    }
    const std::uint32_t next = blocks.before[life].successor;
    if (next == 0 && !blocks.lives[life].survives()) {
      others.push_back(k);
      continue;
    }
    if (next != 0 && places[next].at != places[life].at) {
      pool.blocks[k]->offset = places[next].at;
    }
    taken.push_back(*pool.blocks[k]);
  }
  for (const std::size_t k : others) {
    if (std::ranges::any_of(taken,
                            [&](const auto& each) { return overlap(each, *pool.blocks[k]); })) {
      pool.blocks[k].reset();
    }
  }
  return pool;
}

// The pool in which a run with these places begins.
StartingPool BlockPlanner::pool_of(const Run& run, std::span<const PlannedPlace> places) const {
  const RecordedStep& step = trial_.step();
  StartingPool pool{.blocks = step.pool.blocks, .tier = run.tier};
  for (std::size_t k = 0; k < run.blocks.before.size(); ++k) {
    const std::size_t life = run.blocks.before[k];
    if (life == TrialBlocks::kNone) {
      pool.blocks[k].reset();
      continue;
    }
    const bool placed = pool.blocks[k] && pool.blocks[k]->placed;
    pool.blocks[k] = {
        .offset = places[life].at, .size = run.blocks.log.lives()[life].size, .placed = placed};
  }
  return pool;
}

// `evictions`: by life, the number of entries of the eviction list before it.
BlockPlan BlockPlanner::plan_of(const TrialBlocks& blocks, std::span<const PlannedPlace> places,
                                std::span<const std::uint32_t> evictions) const {
  BlockPlan plan;
  for (std::size_t k = 0; k < blocks.before.size(); ++k) {
    if (blocks.before[k] != TrialBlocks::kNone) {
      plan.starts.push_back(
          {.kind = trial_.step().blocks[k].kind, .place = places[blocks.before[k]]});
    }
  }
  const std::vector<BlockLog::Life>& lives = blocks.log.lives();
  for (std::size_t life = number_before(blocks); life < lives.size(); ++life) {
    if (const auto fetch = blocks.fetches.find(life); fetch != blocks.fetches.end()) {
      plan.fetches.push_back({.ops = lives[life].ops,
                              .evictions = evictions[life],
                              .size = lives[life].size,
                              .value = fetch->second,
                              .place = places[life]});
    } else {
      plan.entries.push_back({.ops = lives[life].ops,
                              .evictions = evictions[life],
                              .size = lives[life].size,
                              .place = places[life]});
    }
  }
  return plan;
}

void BlockPlanner::check() const {
  if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
    throw PlanCancelled();
  }
}

}  // namespace recoup::detail
