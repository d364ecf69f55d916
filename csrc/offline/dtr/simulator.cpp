#include "csrc/offline/dtr/simulator.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {

using Status = SimulationResult::Status;

DtrSimulator::DtrSimulator(const DtrProgram& program, DtrScore score, Bytes budget,
                           double max_time_ratio)
    : program_(program),
      score_(score),
      budget_(budget),
      state_(program),
      neighborhood_(make_neighborhood(score.cost, state_)) {
  if (max_time_ratio > 0) {
    replay_limit_ns_ = (max_time_ratio - 1) * static_cast<double>(program.cost().count());
  }
  result_.stats.budget_bytes = budget.count();
}

SimulationResult DtrSimulator::run() {
  for (const DtrStep& step : program_.steps()) {
    if (!apply(step)) {
      break;
    }
  }
  Stats& stats = result_.stats;
  stats.resident_bytes = used_.count();
  stats.replay_cost_ns = result_.replay_cost.count();
  stats.op_count = result_.ops;
  return std::move(result_);
}

bool DtrSimulator::apply(const DtrStep& step) {
  switch (step.kind) {
    case DtrStep::Kind::kConstant:
      return run_op(DtrOpId(step.index)) && keep(program_[DtrOpId(step.index)].outputs.front());
    case DtrStep::Kind::kOp:
      if (!run_op(DtrOpId(step.index))) {
        return false;
      }
      ++result_.ops;
      result_.plain_cost += program_[DtrOpId(step.index)].cost;
      return true;
    case DtrStep::Kind::kHold:
      ++state_[DtrTensorId(step.index)].holders;
      return true;
    case DtrStep::Kind::kRelease:
      release(DtrTensorId(step.index));
      return true;
    case DtrStep::Kind::kKeep:
      return keep(DtrTensorId(step.index));
  }
  return true;
}

bool DtrSimulator::run_op(DtrOpId id) {
  const DtrOp& op = program_[id];
  state_.last_op = id;
  for (const DtrTensorId output : op.outputs) {
    ++state_[output].holders;
    state_[output].cost += program_[output].cost;
    neighborhood_->on_ask(program_[output].storage);
  }
  if (!define(op.outputs.front(), false)) {
    return false;
  }
  for (const DtrTensorId output : op.outputs) {
    state_[output].last_access = now_;
  }
  return true;
}

// Eager eviction (C.5): a storage is evicted when its last holder releases it. Its lineage stays.
void DtrSimulator::release(DtrTensorId tensor) {
  DtrStorageState& storage = state_[tensor];
  if (--storage.holders == 0 && storage.resident && !storage.kept) {
    ++result_.stats.drops;
    evict(program_[tensor].storage);
  }
}

bool DtrSimulator::keep(DtrTensorId tensor) {
  if (!state_.defined[tensor.index()] && !define(tensor, true)) {
    return false;
  }
  if (!state_[tensor].kept) {
    state_[tensor].kept = true;
    lock(program_[tensor].storage);
  }
  return true;
}

// The recursion of the authors' simulator with its frames on the heap: replays nest as deep as the
// program is long.
bool DtrSimulator::define(DtrTensorId tensor, bool replay) {
  open(tensor, replay);
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.next == frame.missing.size()) {
      if (!finish(frame)) {
        return false;
      }
      frames_.pop_back();
      continue;
    }
    // A replay of another argument may have defined it: an op defines all of its outputs.
    const DtrTensorId argument = frame.missing[frame.next];
    if (state_.defined[argument.index()]) {
      lock(program_[argument].storage);
      ++frame.next;
    } else {
      open(argument, true);
    }
  }
  return true;
}

void DtrSimulator::open(DtrTensorId tensor, bool replay) {
  Frame frame{.tensor = tensor, .replay = replay, .missing = {}};
  for (const DtrTensorId argument : program_[program_[tensor].op].arguments) {
    state_[argument].last_access = now_;
    if (state_.defined[argument.index()]) {
      lock(program_[argument].storage);
    } else {
      frame.missing.push_back(argument);
    }
  }
  frames_.push_back(std::move(frame));
  Stats& stats = result_.stats;
  stats.replay_depth_max =
      std::max(stats.replay_depth_max, static_cast<std::int64_t>(frames_.size()));
}

bool DtrSimulator::finish(const Frame& frame) {
  const DtrOp& op = program_[program_[frame.tensor].op];
  if (!make_room(op)) {
    result_.status = Status::kOutOfBudget;
    return false;
  }
  compute(frame.tensor);
  for (const DtrTensorId argument : op.arguments) {
    unlock(program_[argument].storage);
  }
  if (frame.replay) {
    ++result_.stats.replays;
    result_.replay_cost += op.cost;
  }
  if (static_cast<double>(result_.replay_cost.count()) > replay_limit_ns_) {
    result_.status = Status::kTooSlow;
    return false;
  }
  return true;
}

void DtrSimulator::compute(DtrTensorId tensor) {
  const DtrOp& op = program_[program_[tensor].op];
  now_ += op.cost.count();
  used_ += op.size;
  result_.stats.peak_bytes = std::max(result_.stats.peak_bytes, used_.count());
  const auto define_output = [&](DtrTensorId output) {
    const DtrStorageId storage = program_[output].storage;
    if (state_.defined[output.index()]) {
      // this output was still defined: its second allocation is freed
      used_ -= program_[output].size;
      return;
    }
    state_.defined[output.index()] = true;
    if (!state_[storage].resident) {
      state_[storage].resident = true;
      candidates_.push_back(storage);
      neighborhood_->on_return(storage);
    }
  };
  for (const DtrTensorId output : op.outputs) {
    if (output != tensor) {
      define_output(output);
    }
  }
  define_output(tensor);
}

bool DtrSimulator::make_room(const DtrOp& op) {
  Stats& stats = result_.stats;
  while (used_ + op.size > budget_) {
    if (candidates_.empty()) {
      result_.reason = str_cat(op.name, " needs ", to_string(op.size), "; ", to_string(used_),
                               " of a budget of ", to_string(budget_), " cannot be evicted");
      return false;
    }
    const DtrStorageId victim = choose();
    ++stats.evictions;
    stats.evicted_bytes += program_[victim].size.count();
    evict(victim);
  }
  return true;
}

// Returns the last candidate among those with the lowest score, but the first one with a score of
// 0.
DtrStorageId DtrSimulator::choose() {
  double lowest = std::numeric_limits<double>::infinity();
  DtrStorageId victim;
  for (const DtrStorageId candidate : candidates_) {
    const double found = score(candidate);
    if (found <= lowest) {
      lowest = found;
      victim = candidate;
    }
    if (found == 0) {
      break;
    }
  }
  return victim;
}

double DtrSimulator::score(DtrStorageId id) {
  // The authors compute with unbounded integers: long double is exact for all products that occur.
  long double divisor = 1;
  if (score_.size) {
    divisor *= static_cast<long double>(program_[id].size.count());
  }
  if (score_.staleness) {
    divisor *= static_cast<long double>(now_ - state_[id].last_access);
  }
  if (divisor == 0) {
    return std::numeric_limits<double>::infinity();
  }
  const Nanoseconds cost = score_.cost == DtrScore::Cost::kNone
                               ? Nanoseconds(1)
                               : state_[id].cost + neighborhood_->cost(id);
  return static_cast<double>(static_cast<long double>(cost.count()) / divisor);
}

void DtrSimulator::evict(DtrStorageId id) {
  RECOUP_CHECK(state_[id].resident && state_[id].locks == 0, "storage ", id.index());
  state_[id].resident = false;
  used_ -= program_[id].size;
  remove_candidate(id);
  for (const DtrTensorId tensor : program_[id].tensors) {
    state_.defined[tensor.index()] = false;
  }
  neighborhood_->on_evict(id);
}

void DtrSimulator::lock(DtrStorageId id) {
  if (state_[id].locks++ == 0) {
    remove_candidate(id);
  }
}

void DtrSimulator::unlock(DtrStorageId id) {
  if (--state_[id].locks == 0) {
    candidates_.push_back(id);
  }
}

void DtrSimulator::remove_candidate(DtrStorageId id) {
  const auto found = std::find(candidates_.begin(), candidates_.end(), id);
  RECOUP_CHECK(found != candidates_.end(), "storage ", id.index());
  candidates_.erase(found);
}

}  // namespace recoup::detail
