#include "csrc/engine/engine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

PolicyOptions policy_options(const Options& options, const PolicyInfo& info) {
  PolicyOptions chosen = info.defaults;
  chosen.small_filter = options.small_filter.value_or(chosen.small_filter);
  chosen.sampling = options.sampling.value_or(chosen.sampling);
  // Who asks for a sample gets one, unless an order is asked for too.
  chosen.kinetic = options.kinetic.value_or(chosen.kinetic && !chosen.sampling);
  if (chosen.kinetic && !info.has_order) {
    throw std::invalid_argument(
        str_cat("policy '", info.name, "' keeps no order of candidates; kinetic must be off"));
  }
  chosen.chain_cost = options.chain_cost.value_or(chosen.chain_cost);
  chosen.seed = options.seed;
  chosen.oracle = options.oracle;
  return chosen;
}

std::unique_ptr<EvictionPolicy> make_policy(const Options& options) {
  const PolicyInfo& info = find_policy(options.policy);
  return info.make(policy_options(options, info));
}

}  // namespace

Engine::Engine(const Options& options, Device& device)
    : context_(options, device),
      policy_(make_policy(options)),
      candidates_(policy_->needs(), context_.pool, context_.lineage, context_.move_price,
                  context_.now),
      verifier_(context_.options, device, context_.lineage, context_.stats),
      values_(context_, candidates_, verifier_),
      leaves_(context_, values_),
      pages_(context_),
      enough_(context_),
      reporter_(context_, enough_),
      evictor_(context_, values_, candidates_, *policy_),
      mover_(context_, values_, pages_),
      disturber_(context_, evictor_, mover_, reporter_),
      room_(context_, {.values = values_,
                       .leaves = leaves_,
                       .pages = pages_,
                       .evictor = evictor_,
                       .mover = mover_,
                       .enough = enough_,
                       .reporter = reporter_,
                       .disturber = disturber_}),
      replayer_({.context = context_,
                 .values = values_,
                 .room = room_,
                 .evictor = evictor_,
                 .verifier = verifier_,
                 .disturber = disturber_,
                 .reporter = reporter_},
                leaves_),
      freezer_(context_, values_, leaves_, mover_, room_, replayer_),
      records_(context_, {.values = values_,
                          .candidates = candidates_,
                          .verifier = verifier_,
                          .mover = mover_,
                          .room = room_,
                          .enough = enough_}),
      op_(context_, {.values = values_,
                     .candidates = candidates_,
                     .evictor = evictor_,
                     .enough = enough_,
                     .room = room_,
                     .replayer = replayer_,
                     .freezer = freezer_,
                     .records = records_}) {}

Engine::~Engine() {
  context_.lineage.for_each_op([this](OpId, const Op& op) { context_.device.release(op.payload); });
  context_.lineage.for_each_value([this](ValueId, const Value& value) {
    if (value.external != nullptr) {
      context_.device.forget(value.external);
    }
  });
}

BlockId Engine::allocate(Bytes nbytes) {
  if (!context_.replaying) {
    enough_.allocate(context_.pool.round_up(nbytes));
  }
  const BlockId block = room_.take_block(nbytes);
  if (Observer* const observer = context_.program_observer()) {
    observer->on_allocate(block, nbytes);
  }
  return block;
}

void Engine::free(BlockId block) {
  if (Observer* const observer = context_.program_observer()) {
    observer->on_free(block);
  }
  values_.free_kernel_block(block);
}

StorageId Engine::storage_in(BlockId block) const {
  const ValueId owner = context_.pool.owner(block);
  return owner.valid() ? context_.lineage[owner].storage : StorageId();
}

StorageId Engine::adopt(const FreshStorage& fresh) {
  const StorageId storage = values_.add_storage(fresh);
  if (context_.observer != nullptr) {
    context_.observer->on_adopt(fresh, storage);
  }
  return storage;
}

StorageId Engine::add_external(void* handle, Bytes nbytes, Charge charge) {
  if (charge == Charge::kNow) {
    room_.charge_external(context_.pool.round_up(nbytes));
  }
  const StorageId storage = values_.add_external(handle, nbytes, charge == Charge::kAmongOutside);
  if (context_.observer != nullptr) {
    context_.observer->on_external(storage, nbytes);
  }
  return storage;
}

StorageId Engine::revive_external(ValueId id) {
  const StorageId storage = values_.revive_external(id);
  if (context_.observer != nullptr) {
    context_.observer->on_external(storage, value(id).nbytes);
  }
  return storage;
}

void Engine::forsake_external(StorageId storage) {
  const ValueId leaf = current(storage);
  const Dependents found = leaves_.dependents(leaf);
  if (!found.needed.empty()) {
    throw std::runtime_error(
        "recoup: the memory of a tensor was replaced where recoup could not see it, and an evicted "
        "tensor was made from its old content. Use tensor operations, or recoup.materialize what "
        "depends on it first");
  }
  if (context_.observer != nullptr) {
    context_.observer->on_forsake(storage);
  }
  leaves_.freeze(leaf, found);
  let_go(storage);
}

void Engine::storage_died(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_death(storage);
  }
  let_go(storage);
}

void Engine::let_go(StorageId storage) {
  values_.discard_copy(values_[storage]);
  const ValueId id = values_.remove_storage(storage);
  const Value& value = context_.lineage[id];
  if (!context_.options.usefulness && value.evictable()) {
    values_.transition(id, Residency::kEvicted);
    ++context_.stats.drops;
  }
  if (!context_.lineage.has_consumers(id)) {
    values_.end(id);
    return;
  }
  if (value.leaf()) {
    leaves_.consider(id);
  }
  values_.settle(id);
}

bool Engine::evict(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_evict_request(storage);
  }
  const ValueId id = current(storage);
  if (value(id).evictable()) {
    evictor_.evict_as_told(id);
  }
  return value(id).evicted();
}

void Engine::escape(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_escape(storage);
  }
  const ValueId first = current(storage);
  if (context_.lineage[first].escaped && !context_.lineage.has_consumers(first)) {
    return;  // one that was forsaken may have some
  }
  const ValueId one[] = {first};
  acquire(one);
  values_.make_leaf(first);
  values_.drain();
  release(one);
  freezer_.freeze_or_copy(storage);
  context_.lineage[current(storage)].escaped = true;
  values_.set_island(values_[storage], true);
  candidates_.update(current(storage));
  ++context_.stats.escapes;
}

bool Engine::has_needed_dependents(StorageId storage) const {
  return !leaves_.dependents(current(storage)).needed.empty();
}

PinTicket Engine::pin(StorageId storage) {
  const ValueId one[] = {current(storage)};
  acquire(one);
  HeldStorage& held = values_[storage];
  ++held.user_pins;
  values_.set_island(held, true);
  if (context_.observer != nullptr) {
    context_.observer->on_pin(storage);
  }
  return {.storage = storage, .birth = held.birth};
}

void Engine::unpin(const PinTicket& ticket) noexcept {
  if (!values_.holds(ticket)) {
    return;
  }
  if (context_.observer != nullptr) {
    context_.observer->on_unpin(ticket.storage);
  }
  HeldStorage& storage = values_[ticket.storage];
  --storage.user_pins;
  values_.set_island(storage, storage.user_pins > 0 || value(storage.current).escaped);
  const ValueId one[] = {storage.current};
  release(one);
}

// All live storages at once, so that none is evicted again to make room for another.
void Engine::materialize_all() {
  if (context_.observer != nullptr) {
    context_.observer->on_materialize_all();
  }
  std::vector<ValueId> held;
  Bytes live = context_.charges.external;
  context_.lineage.for_each_value([&](ValueId id, const Value& value) {
    if (value.storage.valid() && !value.leaf()) {
      held.push_back(id);
    }
    live += value.storage.valid() && value.external == nullptr ? value.size : Bytes(0);
  });
  try {
    acquire(held);
  } catch (const OutOfBudget& error) {
    OutOfBudgetReport report = error.report();
    // From here on it is not a new run: what was evicted has to come back, through all that it is
    // made from.
    report.enough = std::max(report.enough, reporter_.all_resident());
    report.least = std::max(report.least, live);
    report.reason = str_cat("all tensors that are alive at the end of the scope need ",
                            recoup::to_string(live));
    throw OutOfBudget(std::move(report));
  }
  for (ValueId id : held) {
    values_.make_leaf(id);
  }
  values_.drain();
  release(held);
}

bool Engine::materialized() const {
  bool all = true;
  context_.lineage.for_each_value([&](ValueId, const Value& value) {
    all &= !value.storage.valid() || (value.leaf() && value.resident());
  });
  return all;
}

void Engine::drop(const ValueTicket& ticket) {
  if (values_.holds(ticket) && Candidates::is_one(value(ticket.value))) {
    evictor_.evict_as_told(ticket.value);
  }
}

void Engine::keep(const ValueTicket& ticket, bool on) {
  if (!values_.holds(ticket)) {
    return;
  }
  Value& value = context_.lineage[ticket.value];
  if (value.kept != on && (!on || value.resident())) {
    value.kept = on;
    if (!on) {
      values_.settle(ticket.value);
    }
  }
}

void Engine::restore(std::span<const ValueTicket> tickets) {
  std::vector<ValueId> wanted;
  Bytes size{0};
  for (const ValueTicket& ticket : tickets) {
    if (values_.holds(ticket) && context_.lineage[ticket.value].evicted()) {
      wanted.push_back(ticket.value);
      size += context_.lineage[ticket.value].size;
    }
  }
  // Without the room, each is got back when it is used.
  if (wanted.empty() || context_.shortfall(size) > Bytes(0)) {
    return;
  }
  // While a replay runs another thread may let go of what only these hold: a dead value's record
  // must outlive a first try that fails.
  for (ValueId id : wanted) {
    values_.soft_pin(id);
  }
  const auto unpin_all = [&] {
    for (ValueId id : wanted) {
      values_.soft_unpin(id);
      values_.settle(id);
    }
  };
  try {
    replayer_.acquire(wanted, Tries::kOne);
  } catch (const OutOfBudget&) {
    unpin_all();
    return;
  } catch (...) {
    unpin_all();
    throw;
  }
  for (ValueId id : wanted) {
    context_.lineage[id].kept = true;
  }
  release(wanted);
  unpin_all();
}

Stats Engine::stats() const {
  Stats stats = context_.stats;
  stats.budget_bytes = context_.options.budget.count();
  stats.resident_bytes = charged().count();
  stats.external_bytes = context_.charges.external.count();
  stats.plans = policy_->work().plans;
  stats.candidates_visited = policy_->work().visited;
  stats.candidates_scored = policy_->work().scored;
  stats.candidates_filtered = policy_->work().filtered;
  stats.live_values = static_cast<std::int64_t>(context_.lineage.value_count());
  stats.live_ops = static_cast<std::int64_t>(context_.lineage.op_count());
  stats.books_bytes = static_cast<std::int64_t>(context_.lineage.memory() + candidates_.memory()) +
                      context_.charges.device_books;
  stats.books_peak_bytes = std::max(context_.stats.books_peak_bytes, stats.books_bytes);
  return stats;
}

PinnedRow Engine::pinned_row(const Value& value) const {
  PinnedRow row{.size = value.size, .by = {}, .op = {}};
  if (value.external != nullptr) {
    row.by = "made outside the scope";
  } else if (value.escaped) {
    row.by = "escape";
  } else if (value.storage.valid() && values_[value.storage].user_pins > 0) {
    row.by = "pin";
  } else if (value.hard_pins > 0) {
    row.by = "a running op";
  } else {
    row.by = value.storage.valid() ? "leaf" : "dead leaf, kept for what can be replayed from it";
  }
  if (!value.leaf()) {
    row.op = context_.device.name(context_.lineage[value.producer].payload);
  }
  return row;
}

std::vector<PinnedRow> Engine::pinned() const {
  std::vector<PinnedRow> rows;
  context_.lineage.for_each_value([&](ValueId, const Value& value) {
    if (value.resident() && !value.evictable()) {
      rows.push_back(pinned_row(value));
    }
  });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PinnedRow& a, const PinnedRow& b) { return a.size > b.size; });
  return rows;
}

void Engine::check() const {
  context_.pool.check();
  context_.lineage.check();
  candidates_.check();
  values_.check(context_.running_op.empty() && !context_.replaying);
  pages_.check();
  RECOUP_CHECK(charged() <= context_.options.budget);
}

}  // namespace recoup::detail
