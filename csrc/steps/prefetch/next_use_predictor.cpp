#include "csrc/steps/prefetch/next_use_predictor.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "csrc/base/hash.h"
#include "csrc/policy/registry.h"

namespace recoup::detail {

NextUsePredictor::NextUsePredictor(const Engine& engine)
    : StepTracker(engine, StepLog::Sizes::kIgnored),
      engine_(engine),
      forecast_(engine),
      periods_(engine) {
  step_.run = forecast_.begin_run();
}

void NextUsePredictor::on_op_ahead(std::string_view name, std::span<const Operand> operands) {
  StepTracker::on_op_ahead(name, operands);
  if (given_up()) {
    return;
  }
  if (!can_go_on()) {
    drop_step();
    return;
  }
  (void)begin_op(name, operands);
  const auto fits = [this](const Step& step) { return agrees(step.hashes); };
  if (following_ == nullptr || !fits(*following_)) {
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const auto& step) { return fits(*step); });
    following_ = found == known_.end() ? nullptr : found->get();
    if (following_ != nullptr) {
      follow(*following_);
    }
  }
}

// A storage that is used only before the running op is used again in the next step, if the step
// repeats.
void NextUsePredictor::follow(const Step& step) {
  next_uses_.clear();
  for (std::size_t op = step.hashes.size(); op-- > 0;) {
    for (std::uint32_t row = step.first[op]; row < step.first[op + 1]; ++row) {
      if (!step.uses[row].made) {
        set_next_use(step.uses[row].storage, static_cast<std::uint32_t>(op));
      }
    }
  }
}

void NextUsePredictor::set_next_use(const PinTicket& storage, std::uint32_t op) {
  next_uses_[storage.storage] = {.birth = storage.birth, .op = op};
}

std::optional<std::uint32_t> NextUsePredictor::next_use(StorageId storage) const {
  if (following_ == nullptr) {
    return std::nullopt;
  }
  const NextUse& found = next_uses_.get(storage);
  if (found.op == kNever || found.birth != engine_.values()[storage].birth) {
    return std::nullopt;
  }
  const auto ops = static_cast<std::uint32_t>(following_->hashes.size());
  const std::uint32_t at = found.op < log().op_count() ? found.op + ops : found.op;
  return at - log().op_count();
}

// Updates the next uses when a predicted op has ended.
void NextUsePredictor::pass_op(std::span<const StorageId> fresh) {
  const std::size_t op = log().op_count() - std::size_t{1};
  const Step& step = *following_;
  for (std::uint32_t row = step.first[op]; row < step.first[op + 1]; ++row) {
    if (const StorageId storage = find(step.uses[row]); storage.valid()) {
      set_next_use(engine_.values().ticket(storage), step.next[row]);
    }
  }
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    const std::size_t row = step.first_made[op] + i;
    if (row < step.first_made[op + 1]) {
      set_next_use(engine_.values().ticket(fresh[i]), step.first_use[row]);
    }
  }
}

// Finds the next use of each storage, backwards from the last op. Storages from before the step are
// used again when the step repeats.
void NextUsePredictor::connect(Step& step) {
  const auto ops = static_cast<std::uint32_t>(step.hashes.size());
  std::unordered_map<std::uint64_t, std::uint32_t> later;  // by storage from before the step
  step.next.assign(step.uses.size(), kNever);
  step.first_use.assign(step.first_made.back(), kNever);
  const auto go_back = [&](bool again) {
    for (std::uint32_t op = ops; op-- > 0;) {
      for (std::uint32_t row = step.first[op + 1]; row-- > step.first[op];) {
        const Use& use = step.uses[row];
        std::uint32_t& next =
            use.made ? step.first_use[step.first_made[use.made->op] + use.made->slot]
                     : later.emplace(use.storage.storage.index(), kNever).first->second;
        if (again && !use.made) {
          step.next[row] = next;
          next = op;
        } else if (!again) {
          step.next[row] = use.made ? next : kNever;
          next = use.made ? op : op + ops;
        }
      }
    }
  };
  go_back(false);
  go_back(true);
}

bool NextUsePredictor::uses_ahead(std::uint32_t n, std::vector<StorageId>& storages) const {
  if (following_ == nullptr) {
    return false;
  }
  const std::size_t ops = following_->hashes.size();
  const std::size_t at = std::size_t{log().op_count()} + n;
  const bool next_step = at >= ops;
  const std::size_t op = next_step ? at - ops : at;
  if (op >= ops) {
    return false;
  }
  for (std::uint32_t row = following_->first[op]; row < following_->first[op + 1]; ++row) {
    if (next_step && following_->uses[row].made) {
      continue;
    }
    if (const StorageId storage = find(following_->uses[row]); storage.valid()) {
      storages.push_back(storage);
    }
  }
  return true;
}

void NextUsePredictor::on_op_begin(std::string_view name, std::span<const Operand> operands) {
  StepTracker::on_op_begin(name, operands);
  name_ = hash_with(0, name);
}

void NextUsePredictor::on_op_end(const OpRecord& record, std::span<const Operand> operands,
                                 std::span<const StorageId> fresh) {
  StepTracker::on_op_end(record, operands, fresh);
  if (in_op()) {
    add_op(record, operands, fresh);
  }
  find_period(operands, fresh);
}

void NextUsePredictor::add_op(const OpRecord& record, std::span<const Operand> operands,
                              std::span<const StorageId> fresh) {
  for (const Operand& operand : operands) {
    if (operand.storage.valid() && (operand.reads || operand.written)) {
      step_.uses.push_back(use_of(operand.storage));
    }
  }
  step_.first.push_back(static_cast<std::uint32_t>(step_.uses.size()));
  end_op(record, operands, fresh);
  for (const StorageId storage : fresh) {
    made_.push_back(engine_.values().ticket(storage));
  }
  first_made_.push_back(static_cast<std::uint32_t>(made_.size()));
  forecast_.add_op(operands, fresh, following_ == nullptr ? 0 : following_->run);
  if (following_ != nullptr) {
    pass_op(fresh);
  }
}

void NextUsePredictor::find_period(std::span<const Operand> operands,
                                   std::span<const StorageId> fresh) {
  ++ops_since_mark_;
  if (overlaps() || ops_since_mark_ <= 2 * shortest_marked_) {
    periods_.restart();
    return;
  }
  const PeriodFinder::Found found = periods_.add_op(name_, operands, fresh);
  if (found == PeriodFinder::Found::kEnd) {
    end_step();
  }
  if (found != PeriodFinder::Found::kNothing) {
    load_.end_step(engine_.counters());
    begin_step();
  }
}

void NextUsePredictor::on_step(std::string_view /*name*/) {
  if (overlaps()) {  // on another thread
    drop_step();
  }
  if (ops_since_mark_ >= PeriodFinder::kShortest) {
    shortest_marked_ =
        shortest_marked_ == 0 ? ops_since_mark_ : std::min(shortest_marked_, ops_since_mark_);
  }
  ops_since_mark_ = 0;
  if (is_empty()) {
    return;
  }
  end_step();
  load_.end_step(engine_.counters());
  begin_step();
}

void NextUsePredictor::begin_step() {
  track_step();
  step_ = {};
  step_.run = forecast_.begin_run();
  made_.clear();
  first_made_.assign(1, 0);
  following_ = nullptr;
}

// The record of the last run is kept: in each run, storages from before the step may be different
// ones.
void NextUsePredictor::end_step() {
  if (given_up() || hashes().empty()) {
    return;
  }
  following_ = nullptr;
  step_.hash = log().hash();
  step_.hashes = take_hashes();
  step_.first_made = first_made_;
  connect(step_);
  std::erase_if(known_, [this](const auto& step) { return step->hash == step_.hash; });
  if (known_.size() == kMostKnown) {
    known_.pop_back();
  }
  known_.insert(known_.begin(), std::make_unique<Step>(std::move(step_)));
}

void NextUsePredictor::drop_step() {
  begin_step();
  give_up();
}

NextUsePredictor::Use NextUsePredictor::use_of(StorageId storage) const {
  if (const std::optional<Made> made = log().maker_in_step(storage)) {
    return {.made = made, .storage = {}};
  }
  return {.made = std::nullopt, .storage = engine_.values().ticket(storage)};
}

// Invalid if the storage does not exist, or not yet.
StorageId NextUsePredictor::find(const Use& use) const {
  PinTicket ticket = use.storage;
  if (use.made) {
    if (use.made->op + std::size_t{1} >= first_made_.size()) {
      return {};
    }
    const std::size_t row = first_made_[use.made->op] + std::size_t{use.made->slot};
    if (row >= first_made_[use.made->op + std::size_t{1}]) {
      return {};
    }
    ticket = made_[row];
  }
  return engine_.values().holds(ticket) ? ticket.storage : StorageId();
}

bool has_next_use_predictor(const Options& options) {
  return options.planning != Planning::kOff && options.spill > Bytes(0) &&
         find_policy(options.policy).schedule == ScheduleKind::kNone;
}

bool has_foresight(const Options& options) {
  return options.planning != Planning::kOff && find_policy(options.policy).foresees;
}

}  // namespace recoup::detail
