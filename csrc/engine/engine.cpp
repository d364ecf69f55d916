#include "csrc/engine/engine.h"

#include <algorithm>
#include <utility>

#include "csrc/engine/replay.h"

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

PoolOptions pool_options(const Options& options) {
  if (options.budget <= Bytes(0)) {
    throw std::invalid_argument("a budget must be at least 1 byte");
  }
  if (options.block_size < Bytes(0)) {
    throw std::invalid_argument("a block size must not be negative");
  }
  if (const std::int64_t a = options.alignment.count(); a <= 0 || (a & (a - 1)) != 0) {
    throw std::invalid_argument("an alignment must be a power of two");
  }
  if (options.outside < Bytes(0) || options.outside >= options.budget) {
    throw std::invalid_argument(str_cat("what was there before the scope takes ",
                                        recoup::to_string(options.outside), ": the budget, ",
                                        recoup::to_string(options.budget), ", must be larger"));
  }
  const std::int64_t addresses = options.addresses > Bytes(0)
                                     ? options.addresses.count()
                                     : (options.budget - options.outside).count();
  return {.capacity = Bytes(addresses / options.alignment.count() * options.alignment.count()),
          .segment_size = options.block_size,
          .alignment = options.alignment};
}

MovePrice price_of_moves(const Options& options, Device& device) {
  MovePrice price;
  if (options.move_ns_per_byte) {
    price.a_byte = *options.move_ns_per_byte;
  } else if (options.cost_model == CostModel::kMeasured) {
    price.a_byte = device.copy_ns_per_byte().value_or(price.a_byte);
  }
  return price;
}

}  // namespace

Engine::Engine(const Options& options, Device& device)
    : options_(options),
      device_(device),
      pool_(pool_options(options)),
      placer_(options.placement, options.budget),
      footprint_(device.page_sizes()),
      move_price_(price_of_moves(options, device)),
      next_birth_(
          static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())),
      policy_(make_policy(options)),
      candidates_(policy_->needs(), pool_, lineage_, move_price_, now_),
      verifier_(options_, device, lineage_, stats_),
      values_(options_, device, pool_, lineage_, candidates_, verifier_, stats_, now_),
      storages_(values_.storages()),
      charges_(values_.charges()),
      enough_(options.alignment) {
  charges_.external = options.outside;
  set_test_aids(options.aids);
  books_bound_ = std::max<std::ptrdiff_t>(std::ptrdiff_t{16} << 20, options.budget.count() / 100);
}

Engine::~Engine() {
  lineage_.for_each_op([this](OpId, const Op& op) { device_.release(op.payload); });
  lineage_.for_each_value([this](ValueId, const Value& value) {
    if (value.external != nullptr) {
      device_.forget(value.external);
    }
  });
}

StorageId Engine::storage_in(BlockId block) const {
  const std::uint32_t owner = pool_.owner(block);
  return owner == 0 ? StorageId() : lineage_[ValueId(owner - 1)].storage;
}

void Engine::storage_died(StorageId storage) {
  if (observer_ != nullptr) {
    observer_->on_death(storage);
  }
  let_go(storage);
}

void Engine::let_go(StorageId storage) {
  discard_copy(storages_[storage]);
  const HeldStorage& dead = storages_[storage];
  const ValueId id = dead.current;
  Value& value = lineage_[id];
  value.hard_pins -= dead.user_pins;
  value.fixed -= dead.user_pins;
  values_.set_island(storages_[storage], false);
  storages_.remove(storage);
  value.storage = StorageId();
  if (value.external == nullptr) {
    charges_.plain -= value.size;
    values_.count_dead_leaf(id);
  }
  if (value.block.valid()) {
    value.escaped = false;
  }
  candidates_.update(id, value);
  if (!options_.usefulness && value.evictable()) {
    values_.transition(id, Residency::kEvicted);
    ++stats_.drops;
  }
  if (!lineage_.has_consumers(id)) {
    values_.end(id);
    return;
  }
  if (value.leaf()) {
    consider_dead_leaf(id);
  }
  values_.settle(id);
}

// Note [Other tries]
void Engine::replay(std::span<const ValueId> values, Tries tries,
                    std::vector<ValueId>& dead_leaves) {
  using Order = Replayer::Order;
  const Order first =
      options_.replay_order == ReplayOrder::kMemory ? Order::kHeaviestFirst : Order::kPinned;
  const Order orders[] = {first, first, Order::kAsGiven};
  const std::size_t last = tries == Tries::kOne ? 0 : std::size(orders) - 1;
  for (std::size_t attempt = 0;; ++attempt) {
    try {
      Replayer(*this, dead_leaves, orders[attempt]).run(values);
      return;
    } catch (const OutOfBudget& error) {
      if (error.report().asked == Bytes(0) || attempt == last) {
        throw;  // it cost too much, or is not worth all that is resident
      }
    }
    ++stats_.restarts;
    evict_candidates();
  }
}

void Engine::acquire(std::span<const ValueId> values, Tries tries) {
  bool all_resident = true;
  for (ValueId id : values) {
    all_resident &= lineage_[id].resident();
  }
  if (all_resident) {
    for (ValueId id : values) {
      Value& value = lineage_[id];
      ++value.fixed;
      if (++value.hard_pins == 1) {
        candidates_.update(id, value);
      }
    }
  } else {
    const auto start = std::chrono::steady_clock::now();
    const Nanoseconds room_before = room_time_;
    std::vector<ValueId> dead_leaves;
    const auto add_time = [&] {
      const Nanoseconds elapsed = std::chrono::steady_clock::now() - start;
      stats_.replay_ns += (elapsed - (room_time_ - room_before)).count();
    };
    try {
      replay(values, tries, dead_leaves);
    } catch (...) {
      add_time();
      throw;
    }
    for (ValueId id : dead_leaves) {
      if (lineage_.contains(id)) {
        consider_dead_leaf(id);
      }
    }
    add_time();
    for (ValueId id : values) {
      ++lineage_[id].fixed;
    }
  }
}

void Engine::release(std::span<const ValueId> values) noexcept {
  for (ValueId id : values) {
    Value& value = lineage_[id];
    --value.fixed;
    values_.hard_unpin(id, value);
  }
}

bool Engine::evict(StorageId storage) {
  if (observer_ != nullptr) {
    observer_->on_evict_request(storage);
  }
  const ValueId id = storages_[storage].current;
  if (lineage_[id].evictable()) {
    told_to_evict_ = true;
    evict_value(id);
  }
  return lineage_[id].evicted();
}

void Engine::evict_everything() {
  told_to_evict_ = true;
  evict_candidates();
}

void Engine::evict_candidates() {
  const std::vector<ValueId> all = candidates_.list();
  for (ValueId id : all) {
    if (lineage_.contains(id) && lineage_[id].evictable()) {
      evict_value(id);
    }
  }
}

void Engine::escape(StorageId storage) {
  if (observer_ != nullptr) {
    observer_->on_escape(storage);
  }
  const ValueId first = storages_[storage].current;
  if (lineage_[first].escaped && !lineage_.has_consumers(first)) {
    return;  // one that was forsaken may have some
  }
  const ValueId one[] = {first};
  acquire(one);
  values_.make_leaf(first);
  values_.drain();
  release(one);
  freeze_or_copy(storage);
  lineage_[storages_[storage].current].escaped = true;
  values_.set_island(storages_[storage], true);
  candidates_.update(storages_[storage].current);
  ++stats_.escapes;
}

PinTicket Engine::pin(StorageId storage) {
  const ValueId one[] = {storages_[storage].current};
  acquire(one);
  ++storages_[storage].user_pins;
  values_.set_island(storages_[storage], true);
  if (observer_ != nullptr) {
    observer_->on_pin(storage);
  }
  return {.storage = storage, .birth = storages_[storage].birth};
}

void Engine::unpin(const PinTicket& ticket) noexcept {
  if (!holds(ticket)) {
    return;
  }
  if (observer_ != nullptr) {
    observer_->on_unpin(ticket.storage);
  }
  HeldStorage& storage = storages_[ticket.storage];
  --storage.user_pins;
  values_.set_island(storage, storage.user_pins > 0 || lineage_[storage.current].escaped);
  const ValueId one[] = {storages_[ticket.storage].current};
  release(one);
}

// All live storages at once, so that none is evicted again to make room for another.
void Engine::settle_all() {
  if (observer_ != nullptr) {
    observer_->on_settle();
  }
  std::vector<ValueId> held;
  Bytes live = charges_.external;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
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
    report.enough = std::max(report.enough, all_resident());
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

bool Engine::settled() const {
  bool settled = true;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    settled &= !value.storage.valid() || (value.leaf() && value.resident());
  });
  return settled;
}

std::vector<BlockView> Engine::live_blocks() const {
  std::vector<BlockView> blocks;
  for (BlockId block = pool_.first(); block.valid(); block = pool_.next(block)) {
    if (const BlockView view = pool_.view(block); !view.free) {
      blocks.push_back(view);
    }
  }
  return blocks;
}

Stats Engine::stats() const {
  Stats stats = stats_;
  stats.budget_bytes = options_.budget.count();
  stats.resident_bytes = charged().count();
  stats.external_bytes = charges_.external.count();
  stats.plans = policy_->work().plans;
  stats.candidates_visited = policy_->work().visited;
  stats.candidates_scored = policy_->work().scored;
  stats.candidates_filtered = policy_->work().filtered;
  stats.live_values = static_cast<std::int64_t>(lineage_.value_count());
  stats.live_ops = static_cast<std::int64_t>(lineage_.op_count());
  stats.books_bytes =
      static_cast<std::int64_t>(lineage_.memory() + candidates_.memory()) + charges_.device_books;
  stats.books_peak_bytes = std::max(stats_.books_peak_bytes, stats.books_bytes);
  return stats;
}

std::vector<PinnedRow> Engine::pinned() const {
  std::vector<PinnedRow> rows;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    if (!value.resident() || value.evictable()) {
      return;
    }
    PinnedRow row{.size = value.size, .by = {}, .op = {}};
    if (value.external != nullptr) {
      row.by = "made outside the scope";
    } else if (value.escaped) {
      row.by = "escape";
    } else if (value.storage.valid() && storages_[value.storage].user_pins > 0) {
      row.by = "pin";
    } else if (value.hard_pins > 0) {
      row.by = "a running op";
    } else {
      row.by = value.storage.valid() ? "leaf" : "dead leaf, kept for what can be replayed from it";
    }
    if (!value.leaf()) {
      row.op = device_.name(lineage_[value.producer].payload);
    }
    rows.push_back(std::move(row));
  });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PinnedRow& a, const PinnedRow& b) { return a.size > b.size; });
  return rows;
}

void Engine::check() const {
  pool_.check();
  lineage_.check();
  candidates_.check();
  Bytes external{0};
  Bytes owned{0};
  Bytes plain{0};
  Bytes dead_leaves{0};
  std::size_t owned_blocks = 0;
  int islands = 0;
  storages_.for_each(
      [&](StorageId, const HeldStorage& storage) { islands += static_cast<int>(storage.island); });
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    RECOUP_CHECK((value.resident() && value.external == nullptr) == value.block.valid(), "value ",
                 id.index());
    if (value.external != nullptr && !value.among_outside) {
      external += value.size;
    }
    if (value.block.valid()) {
      const BlockView block = pool_.view(value.block);
      RECOUP_CHECK(block.owner == id.index() + 1 && block.size == value.size && !block.free);
      owned += value.size;
      ++owned_blocks;
      dead_leaves += value.leaf() && !value.storage.valid() ? value.size : Bytes(0);
      RECOUP_CHECK(!footprint_.counting() || footprint_.covers(block.offset, block.size), "value ",
                   id.index(), " is in memory that was given back");
    }
    plain += value.storage.valid() && value.external == nullptr ? value.size : Bytes(0);
    RECOUP_CHECK(!value.storage.valid() || storages_[value.storage].current == id);
    RECOUP_CHECK(value.hard_pins >= value.fixed && value.fixed >= 0 && value.soft_pins >= 0);
    RECOUP_CHECK(value.held() || lineage_.has_consumers(id), "value ", id.index(),
                 " is kept for nobody");
  });
  RECOUP_CHECK(plain == charges_.plain && dead_leaves == charges_.dead_leaves &&
               islands == charges_.islands);
  RECOUP_CHECK(owned_blocks + static_cast<std::size_t>(charges_.kernel_blocks) ==
               pool_.taken_blocks());
  RECOUP_CHECK(external + options_.outside == charges_.external);
  RECOUP_CHECK(owned + charges_.kernel_held == pool_.used(), owned.count(), " + ",
               charges_.kernel_held.count(), " != ", pool_.used().count());
  RECOUP_CHECK(charged() <= options_.budget);
  RECOUP_CHECK(!values_.settling());
}

}  // namespace recoup::detail
