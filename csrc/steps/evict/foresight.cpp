#include "csrc/steps/evict/foresight.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "csrc/steps/evict/plan_record.h"

namespace recoup::detail {
namespace {

// Limit for the cost of moves in place of an eviction: the planned cost of the step divided by
// this.
constexpr std::int64_t kMostMoved = 20;

}  // namespace

Foresight::Foresight(Engine& engine, const Settings& settings)
    : StepTracker(engine), engine_(engine), settings_(settings), budget_(engine.budget()) {
  begin_step();
}

void Foresight::on_op_ahead(std::string_view name, std::span<const Operand> operands) {
  StepTracker::on_op_ahead(name, operands);
  if (given_up()) {
    return;
  }
  if (!can_go_on()) {
    drop_step();
    return;
  }
  if (!std::exchange(begun_, true)) {
    tell({});  // a trace without a plan stands for a run without planning
  }
  adopt();
  (void)begin_op(name, operands);
  follow();
}

void Foresight::follow() {
  KnownStep* const before = following_;
  following_ = agreeing();
  if (log().op_count() == 0) {
    followed_all_ = following_ != nullptr && following_->evictions;
    arranged_ = followed_all_ && following_->hash == in_place_ && following_->in_use.arranges_once;
    if (followed_all_ && !following_->evictions->blocks.empty() &&
        engine_.options().spill > Bytes(0)) {
      writes_.emplace(following_->evictions->list);
      writes_->begin(log(), engine_);
    }
  } else if (following_ != before) {
    counts_.left_steps += followed_all_ ? 1 : 0;
    followed_all_ = false;
  }
  list_used_ |= following_ != nullptr && following_->evictions;
}

// Of the known steps that began in the same way: the one that is followed; else the one that came
// after the previous step last time; else the most recently used.
KnownStep* Foresight::agreeing() {
  const auto fits = [this](const KnownStep& step) { return agrees(step.hashes); };
  if (following_ != nullptr && fits(*following_)) {
    return following_;
  }
  const KnownStep* const last = find(last_);
  KnownStep* const expected = last == nullptr ? nullptr : find(last->successor);
  if (expected != nullptr && fits(*expected)) {
    return expected;
  }
  const auto found =
      std::find_if(known_.begin(), known_.end(), [&](const auto& step) { return fits(*step); });
  return found == known_.end() ? nullptr : found->get();
}

PlannedVictim Foresight::next() const {
  return following_ != nullptr && following_->evictions ? following_->evictions->list.next(log())
                                                        : PlannedVictim();
}

// Moves that were cheap when the list was verified may be expensive in the current state of the
// pool.
std::optional<Nanoseconds> Foresight::moves_next() const {
  if (following_ == nullptr || !following_->evictions ||
      !following_->evictions->list.moves_next(log(), moves_)) {
    return std::nullopt;
  }
  return following_->evictions->expected.total / kMostMoved;
}

// Only from the beginning of a step, because blocks that are allocated otherwise are in the way. In
// another budget the plan's evictions may be unnecessary, and are not only made when memory is
// short.
bool Foresight::places() const {
  return followed_all_ && !following_->evictions->blocks.empty() && engine_.budget() == budget_;
}

std::optional<PlannedPlace> Foresight::begin_block(Bytes size) {
  const auto place = follower_.begin_block(following_->evictions->blocks, log(), size);
  counts_.misplaced_blocks += place ? 0 : 1;
  as_planned_ &= place.has_value();
  return place;
}

PlannedVictim Foresight::victim_before_block() {
  return follower_.victim(following_->evictions->list, log());
}

// Operands of the running op must not move, so the first ops are tried one after another.
Arrangement Foresight::take_arrangement() {
  if (arranged_ || log().op_count() >= BlockFollower::kFirstOps) {
    return {};
  }
  Arrangement first = follower_.arrangement(following_->evictions->blocks, log(), engine_);
  arranged_ = first.empty();
  if (!std::exchange(arranging_, true) && following_->hash == in_place_) {
    following_->in_use.arranges_once = arranged_ && !follower_.misses();
  }
  as_planned_ &= first.empty();
  return first;
}

std::optional<PlannedFetch> Foresight::begin_fetch() {
  return follower_.begin_fetch(following_->evictions->blocks, log(), engine_);
}

void Foresight::end_fetch(bool begun, bool moved) {
  follower_.end_fetch(begun);
  as_planned_ &= !moved;
  counts_.planned_blocks += begun ? 1 : 0;
}

void Foresight::end_block(bool as_planned, bool moved) {
  ++(as_planned ? counts_.planned_blocks : counts_.misplaced_blocks);
  as_planned_ &= as_planned && !moved;
}

void Foresight::on_op_end(const OpRecord& record, std::span<const Operand> operands,
                          std::span<const StorageId> fresh) {
  StepTracker::on_op_end(record, operands, fresh);
  if (in_op()) {
    costs_.push_back(record.cost);
    end_op(record, operands, fresh);
    moves_ = 0;
    if (copies()) {
      writes_->end_op(log(), engine_, operands, fresh);
    }
  }
}

void Foresight::on_evict(ValueId value) {
  Observers::on_evict(value);
  count_listed(value);
}

void Foresight::on_spill(ValueId value) {
  Observers::on_spill(value);
  count_listed(value);
}

void Foresight::count_listed(ValueId value) {
  if (following_ == nullptr || !following_->evictions) {
    return;
  }
  const std::optional<Made> made = log().find(value);
  const auto named = following_->evictions->list.at(log().op_count());
  counts_.listed_evictions += std::any_of(named.begin(), named.end(),
                                          [&](const auto& entry) { return entry.victim == made; });
}

void Foresight::add_to(Stats& stats) const {
  stats.foreseen_steps += counts_.foreseen_steps;
  stats.eviction_lists += counts_.eviction_lists;
  stats.given_up_lists += counts_.given_up_lists;
  stats.left_steps += counts_.left_steps;
  stats.listed_evictions += counts_.listed_evictions;
  stats.planned_blocks += counts_.planned_blocks;
  stats.misplaced_blocks += counts_.misplaced_blocks;
  stats.followed_steps += counts_.followed_steps;
  stats.followed_expected_ns += counts_.followed_expected_ns;
  stats.followed_cost_ns += counts_.followed_cost_ns;
  stats.planning_ns += counts_.planning_ns;
}

void Foresight::on_step(std::string_view name) {
  Observers::on_step(name);
  if (is_empty() && engine_.budget() == budget_) {
    return;
  }
  if (overlaps()) {  // on another thread
    drop_step();
  }
  try {
    end_step();
    adopt_recorded();
  } catch (...) {
    begin_step();
    throw;
  }
  begin_step();
}

void Foresight::begin_step() {
  set({});
  recorder_.reset();
  track_step();
  forget_step();
  cost_before_ = cost();
  plans_before_ = engine_.search_work().plans;
  move_searches_ = 0;
  if (engine_.budget() != budget_) {
    budget_ = engine_.budget();
    thread_.cancel();
    fruitless_ = 0;
    for (const auto& step : known_) {
      step->change_budget();
    }
  }
  if (!given_up() && worth_recording()) {
    recorder_ = std::make_unique<StepRecorder>(engine_, log());
    set({&recorder_->observer()});
  }
}

void Foresight::forget_step() {
  costs_.clear();
  moves_ = 0;
  follower_.begin_step();
  arranged_ = false;
  arranging_ = false;
  as_planned_ = true;
  writes_.reset();
  following_ = nullptr;
  followed_all_ = false;
  list_used_ = false;
}

bool Foresight::worth_recording() const {
  return fruitless_ < kFruitless || fruitless_ % kFruitless == 0;
}

KnownSteps Foresight::take_known() {
  end_step();
  following_ = nullptr;
  return std::exchange(known_, {});
}

void Foresight::drop_step() {
  track_step();
  give_up();
  forget_step();
  set({});
  recorder_.reset();
}

KnownStep* Foresight::find(StepHash hash) {
  const auto found = std::find_if(known_.begin(), known_.end(),
                                  [&](const auto& step) { return step->hash == hash; });
  return found == known_.end() ? nullptr : found->get();
}

void Foresight::end_step() {
  set({});
  ++fruitless_;
  const StepHash hash = log().hash();
  in_place_ = followed_all_ && as_planned_ ? hash : 0;
  if (given_up() || hashes().empty() || engine_.budget() != budget_) {
    last_ = 0;
    return;
  }
  const bool ended_early = followed_all_ && following_->hash != hash;
  counts_.left_steps += ended_early ? 1 : 0;
  const bool repeats = last_ == hash;
  KnownStep* step = find(hash);
  if (step != nullptr) {
    step->add_costs(costs_);
    watch(*step);
  } else if (!settings_.at_once && std::find(seen_.begin(), seen_.end(), hash) == seen_.end()) {
    seen_.push_back(hash);
    if (seen_.size() > kMostSeen) {
      seen_.erase(seen_.begin());
    }
  } else {
    step = &add_known(hash);
    step->add_costs(costs_);
    measure_policy(*step);
  }
  if (KnownStep* const last = find(last_)) {
    last->successor = hash;
  }
  last_ = hash;
  // Addresses are planned only for a step that repeats at once.
  const bool keeps_places = step != nullptr && step->evictions && !step->evictions->blocks.empty();
  if (step != nullptr && step->again && recorder_ != nullptr && (repeats || !keeps_places)) {
    plan(*step, repeats);
  }
}

KnownStep& Foresight::add_known(StepHash hash) {
  std::erase(seen_, hash);
  following_ = nullptr;
  if (known_.size() == kMostKnown) {
    known_.pop_back();
  }
  KnownStep& step = **known_.insert(known_.begin(), std::make_unique<KnownStep>());
  step.hash = hash;
  step.hashes = take_hashes();
  step.again = true;
  return step;
}

void Foresight::plan(KnownStep& step, bool repeats) {
  if (settings_.recorded) {
    return;
  }
  if (settings_.background) {
    plan_on_thread(step, repeats);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const EvictionList before = step.evictions ? step.evictions->list : EvictionList();
  std::optional<StepEvictions> found =
      plan_step(take_recorded(step, repeats), before, settings_.work);
  step.again = false;
  if (step.accepts(found)) {
    put(step, std::move(found));
  }
  counts_.planning_ns += Nanoseconds(std::chrono::steady_clock::now() - start).count();
}

// The recorded step, with the lowest costs of its ops in the last runs: a single run may have been
// disturbed.
RecordedStep Foresight::take_recorded(const KnownStep& step, bool repeats) {
  RecordedStep recorded = recorder_->take(repeats);
  recorded.set_costs(step.lowest_costs());
  return recorded;
}

// Plans one step at a time; the others are planned when they repeat.
void Foresight::plan_on_thread(KnownStep& step, bool repeats) {
  if (thread_.busy()) {
    return;
  }
  try {
    thread_.start({.step = take_recorded(step, repeats),
                   .before = step.evictions ? step.evictions->list : EvictionList(),
                   .work = settings_.work,
                   .hash = step.hash});
    step.again = false;
    step.in_work = true;
  } catch (const std::system_error&) {  // no thread could be started: perhaps next time
  }
}

// If the list is for the running step, it is used from here on.
void Foresight::adopt() {
  std::optional<PlannerThread::Found> found =
      recorded_ ? std::exchange(recorded_, std::nullopt) : thread_.take();
  if (found) {
    if (KnownStep* const step = find(found->hash)) {
      if (thread_.busy() && step->awaits_second()) {
        return;  // the policy's own evictions: a plan is in use
      }
      step->in_work = thread_.busy();
      if (settings_.recorded || (step->accepts(found->evictions) && !step->has(found->evictions))) {
        followed_all_ = followed_all_ && step != following_;
        put(*step, std::move(found->evictions));
      }
    }
  }
}

void Foresight::adopt_recorded() {
  if (recorded_) {
    adopt();
  }
}

void Foresight::put(KnownStep& step, std::optional<StepEvictions> evictions) {
  step.use(std::move(evictions));
  in_place_ = 0;
  fruitless_ = 0;
  ++counts_.foreseen_steps;
  counts_.eviction_lists += step.evictions ? 1 : 0;
  tell(step);
}

void Foresight::tell(const KnownStep& step) {
  if (engine_.context().observer == nullptr) {
    return;
  }
  const PlanRecord record(step.evictions ? *step.evictions : StepEvictions());
  engine_.context().observer->on_plan(
      {.step = step.hash,
       .budget = budget_,
       .expected = step.evictions ? step.evictions->expected.total : Nanoseconds(0),
       .listed = step.evictions.has_value()},
      record.lists());
}

void Foresight::on_recorded(const TracePlan& plan, const TracePlanLists& lists) {
  if (!settings_.recorded || plan.budget != budget_) {
    return;
  }
  recorded_ = {.hash = plan.step, .evictions = std::nullopt};
  if (plan.listed) {
    recorded_->evictions = PlanRecord::read(lists, plan.expected);
  }
}

void Foresight::cancel_planning() noexcept {
  thread_.cancel();
  for (const auto& step : known_) {
    step->again |= std::exchange(step->in_work, false);
  }
}

}  // namespace recoup::detail
