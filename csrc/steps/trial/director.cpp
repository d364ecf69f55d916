#include "csrc/steps/trial/director.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/steps/trial/cancelled.h"

namespace recoup::detail {
namespace {

constexpr Nanoseconds kNoLimit{std::int64_t{1} << 50};

double waited_part(const Director::Orders& orders) {
  const bool named = orders.score != nullptr && orders.score->waited_part;
  return named ? *orders.score->waited_part : orders.step.waited_part;
}

}  // namespace

Director::Director(const Simulator& simulator, const StepUses& uses, const Orders& orders)
    : simulator_(simulator),
      log_(simulator.engine()),
      forecast_(uses, simulator.engine(), orders.writes, waited_part(orders)),
      orders_(orders),
      replays_(uses.ops()) {
  log_.set_names(&names_);
  if (orders.blocks != nullptr) {
    last_uses_.emplace(simulator.engine(), orders.blocks->log);
  }
}

PlannedVictim Director::next() const {
  return orders_.list == nullptr ? PlannedVictim() : orders_.list->next(log_);
}

std::optional<Nanoseconds> Director::moves_next() const {
  const bool named = orders_.list != nullptr && orders_.list->moves_next(log_, moves_);
  return named ? std::optional(kNoLimit) : std::nullopt;
}

void Director::on_room_by_moves() {
  add_done({.ops = log_.op_count(), .victim = EvictionList::moves(moves_++)},
           last_uses_ ? last_uses_->now() : 0);
}

bool Director::places() const { return orders_.plan != nullptr || orders_.blocks != nullptr; }

std::optional<PlannedPlace> Director::begin_block(Bytes size) {
  const bool planned = orders_.plan != nullptr && begun_;  // blocks from before the step are not
  return planned ? follower_.begin_block(*orders_.plan, log_, size) : std::nullopt;
}

PlannedVictim Director::victim_before_block() { return follower_.victim(*orders_.list, log_); }

// In a run without regard to addresses the blocks from before the step are in their places.
Arrangement Director::take_arrangement() {
  if (orders_.blocks != nullptr || arranged_ || log_.op_count() >= BlockFollower::kFirstOps) {
    return {};
  }
  Arrangement first = follower_.arrangement(*orders_.plan, log_, engine());
  arranged_ = first.empty();
  return first;
}

// Blocks that are allocated elsewhere, or for which others are moved, while those from before the
// step are brought to their places do not count.
void Director::end_block(bool as_planned, bool moved) {
  const bool arranging =
      orders_.blocks == nullptr && !arranged_ && log_.op_count() < BlockFollower::kFirstOps;
  if ((!as_planned || moved) && !arranging) {
    follower_.count_elsewhere();
  }
}

std::optional<PlannedFetch> Director::begin_fetch() {
  const std::optional<PlannedFetch> fetch = follower_.begin_fetch(*orders_.plan, log_, engine());
  fetch_ = fetch ? log_.find(fetch->value) : std::nullopt;
  return fetch;
}

void Director::end_fetch(bool begun, bool moved) {
  end_block(/*as_planned=*/true, moved);  // a fetch that cannot begin yet begins later
  follower_.end_fetch(begun);
  if (begun) {
    add_fetch(fetch_);
  }
}

void Director::on_fetch_ahead(ValueId value) { add_fetch(log_.find(value)); }

void Director::add_fetch(const std::optional<Made>& value) {
  if (orders_.blocks != nullptr && value) {
    orders_.blocks->fetches[orders_.blocks->log.lives().size() - 1] = *value;
  }
}

Nanoseconds Director::until_use(StorageId storage) const {
  const Nanoseconds until = simulator_.future()->until_use(storage);
  return until != Candidate::kNever ? until : forecast_.until_next_run(storage).value_or(until);
}

std::int8_t Director::priority(ValueId value) const {
  if (orders_.score == nullptr || orders_.score->priorities.empty()) {
    return 0;
  }
  const std::optional<Made> made = log_.find(value);
  return made && made->in_step() ? orders_.score->priorities[made->op] : std::int8_t{0};
}

void Director::on_op_ahead(std::string_view name, std::span<const Operand> operands) {
  stop_if_asked();
  if (!std::exchange(begun_, true)) {
    begin();
  }
  running_ = log_.with(name, operands);
}

// All storages from before the step are there.
void Director::begin() {
  const std::vector<StorageId>& storages = simulator_.storages();
  for (std::size_t number = 0; number < storages.size(); ++number) {
    forecast_.add_storage(storages[number]);
    if (number < orders_.step.names.size()) {
      names_.add(storages[number], orders_.step.names[number]);
    }
  }
  if (orders_.writes != nullptr) {
    orders_.writes->begin(log_, engine());
  }
}

// A trace has no number for the storage of a window.
void Director::on_external(StorageId storage, const OutsideStorage& outside) {
  if (outside.window) {
    log_.add_storage(storage);
  } else {
    add_storage(storage);
  }
}

void Director::on_adopt(const FreshStorage& /*fresh*/, StorageId storage) { add_storage(storage); }

void Director::add_storage(StorageId storage) {
  log_.add_storage(storage);
  if (begun_) {
    forecast_.add_storage(storage);
  }
}

void Director::on_op_end(const OpRecord& record, std::span<const Operand> operands,
                         std::span<const StorageId> fresh) {
  log_.add_op(running_, record, operands, fresh);
  moves_ = 0;
  for (const StorageId storage : fresh) {
    forecast_.add_storage(storage);
  }
  forecast_.end_op();
  if (last_uses_) {
    orders_.blocks->log.set_ops(log_.op_count());
    last_uses_->end_op(operands, fresh);
  }
  const std::uint32_t op = log_.op_count() - 1;
  for (const ValueTicket& ticket : log_.made_by(op)) {
    if (ticket.value.valid()) {
      ops_.resize(ticket.made_by + 1);
      ops_[ticket.made_by] = op;
    }
  }
  if (orders_.writes != nullptr) {
    orders_.writes->end_op(log_, engine(), operands, fresh);
  }
}

void Director::on_replay(std::string_view /*name*/, OpId /*id*/, const Op& op) {
  stop_if_asked();
  if (last_uses_) {
    last_uses_->begin_replay(op);
  }
  ++replays_[ops_[op.sequence]];
}

void Director::add_victim(ValueId value, bool spills) {
  const std::optional<Made> made = begun_ ? log_.find(value) : std::nullopt;
  if (made) {
    add_done({.ops = log_.op_count(), .victim = *made, .spills = spills},
             last_uses_ ? last_uses_->earliest(value, spills) : 0);
  }
}

// `earliest`: the life before which it can be.
void Director::add_done(const EvictionList::Entry& entry, std::uint32_t earliest) {
  done_.push_back(entry);
  if (orders_.blocks != nullptr) {
    orders_.blocks->log.set_evictions(done_.size());
    early_.push_back(earliest);
  }
}

void Director::find_early() {
  const std::vector<BlockLog::Life>& lives = orders_.blocks->log.lives();
  std::vector<std::size_t> order(done_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return early_[i]; });
  std::vector<EvictionList::Entry> sorted;
  std::vector<std::uint32_t>& before = orders_.blocks->early_before;
  for (const std::size_t i : order) {
    before.resize(std::max<std::size_t>(before.size(), early_[i]),
                  static_cast<std::uint32_t>(sorted.size()));
    sorted.push_back(done_[i]);
    if (early_[i] < lives.size()) {
      sorted.back().ops = lives[early_[i]].ops;
    }
  }
  before.resize(lives.size(), static_cast<std::uint32_t>(sorted.size()));
  orders_.blocks->early = EvictionList(std::move(sorted));
}

BlockKind Director::kind_of(const BlockLog::Life& life) const {
  const StorageId storage = engine().storage_of(life.block);
  BlockKind kind{.size = life.size.count()};
  if (!storage.valid()) {
    return kind;
  }
  if (const std::optional<Made> maker = log_.maker_in_step(storage)) {
    return BlockKind::of(life.size, storage, maker);
  }
  if (const std::optional<Made> name = log_.name_in_next_step(storage)) {
    kind.storage = std::int64_t{name->slot} + 1;
  }
  return kind;
}

StorageId Director::successor(const RecordedStep::Before& before) const {
  if (before.kind.op > 0 && orders_.step.repeats) {  // what the same op made in this run
    return log_.made_in_step({.op = static_cast<std::uint32_t>(before.kind.op - 1),
                              .slot = static_cast<std::uint32_t>(before.kind.slot)});
  }
  return before.storage == RecordedStep::kNone ? StorageId() : forecast_.find(before.storage);
}

void Director::stop_if_asked() const {
  if (orders_.stop != nullptr && orders_.stop->load(std::memory_order_relaxed)) {
    throw PlanCancelled();
  }
}

}  // namespace recoup::detail
