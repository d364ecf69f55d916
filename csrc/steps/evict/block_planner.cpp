#include "csrc/steps/evict/block_planner.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "csrc/steps/place/step_layout.h"
#include "csrc/steps/trial/cancelled.h"

namespace recoup::detail {
namespace {

// Limit of runs until one ends with the values spilled with which it began.
constexpr int kMostRuns = 8;
// The smallest budget in which evictions are chosen, in percent of the actual one.
constexpr int kLeastPercent = 92;
// Limit of a search for a layout: its nodes times its items. About 0.1 seconds.
constexpr std::int64_t kMostWork = 12'000'000;

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
  std::optional<Run> run = run_by_bytes(score, {.budget = budget, .most = most});
  if (!run) {
    return std::nullopt;
  }
  std::optional<Found> found = place_early(*run, most);
  return found ? std::move(found) : place_run(*run, most);
}

// Runs of a step with a spill tier are repeated until one ends with the values spilled with which
// it began, because the next run begins there.
std::optional<BlockPlanner::Run> BlockPlanner::run_by_bytes(const StepScore& score,
                                                            const TrialLimits& limits) {
  StepScore next = score;
  for (int n = 0; n < kMostRuns; ++n) {
    Run run{.spilled = next.spilled, .clean = next.clean};
    TrialResult result = trial_.run(next, limits, run.blocks);
    if (!result.fits || result.cost >= limits.most) {
      return std::nullopt;
    }
    run.list = result.done;
    for (const BlockLog::Life& life : run.blocks.log.lives()) {
      run.evictions.push_back(life.evictions);
    }
    if (!trial_.has_tier() ||
        (result.spilled == next.spilled && (result.clean == next.clean || n + 1 == kMostRuns))) {
      return run;
    }
    next.spilled = std::move(result.spilled);
    next.clean = std::move(result.clean);
    next.writes = std::move(result.done);
  }
  return std::nullopt;
}

// Values are evicted when they are no longer used instead of when bytes are short: the shorter the
// lives, the more layouts. What an evicted value is computed from then lives longer, so the lives
// are those of another run.
std::optional<BlockPlanner::Found> BlockPlanner::place_early(const Run& lazy, Nanoseconds most) {
  Run early{.list = lazy.blocks.early, .spilled = lazy.spilled, .clean = lazy.clean};
  const std::vector<PlannedPlace> places = apart(lazy.blocks);
  const BlockPlan plan = plan_of(lazy.blocks, places, lazy.blocks.early_before);
  const StartingPool pool = pool_of(lazy, places);
  const TrialResult result = trial_.run(early.list, plan, pool, &early.blocks);
  const bool same = early.blocks.log.lives().size() == lazy.blocks.log.lives().size();
  if (!result.fits || result.elsewhere > 0 || !same || result.cost >= most) {
    return std::nullopt;
  }
  early.evictions = lazy.blocks.early_before;
  return place_run(early, most);
}

std::optional<BlockPlanner::Found> BlockPlanner::place_run(const Run& run, Nanoseconds most) {
  const StepBlocks blocks = blocks_of(trial_.step(), run.blocks);
  const auto lives = std::ssize(blocks.lives);
  const std::optional<std::vector<PlannedPlace>> places =
      lay_out(blocks, kMostWork / std::max<std::int64_t>(lives, 1), [this] { check(); });
  if (!places) {
    return std::nullopt;
  }
  Found found;
  found.plan = plan_of(run.blocks, *places, run.evictions);
  found.result = trial_.run(run.list, found.plan, pool_of(run, *places));
  found.result.cost += cost_of_alternating(blocks, *places);
  if (!found.result.fits || found.result.elsewhere > 0 || found.result.cost >= most) {
    return std::nullopt;
  }
  found.result.done = run.list;
  return found;
}

// The pool in which a run with these places begins.
StartingPool BlockPlanner::pool_of(const Run& run, std::span<const PlannedPlace> places) const {
  const RecordedStep& step = trial_.step();
  StartingPool pool{.blocks = step.pool.blocks, .spilled = run.spilled, .clean = run.clean};
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
