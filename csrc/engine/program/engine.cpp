#include "csrc/engine/program/engine.h"

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
  // An explicit request for sampling turns the order off, unless an order is requested too.
  chosen.kinetic = options.kinetic.value_or(chosen.kinetic && !chosen.sampling);
  if (chosen.kinetic && !info.has_order) {
    throw std::invalid_argument(str_cat("policy '", info.name,
                                        "' does not keep its candidates in order; kinetic must be "
                                        "off"));
  }
  chosen.chain_cost = options.chain_cost.value_or(chosen.chain_cost);
  chosen.seed = options.seed;
  chosen.oracle = options.oracle;
  return chosen;
}

std::unique_ptr<EvictionPolicy> policy_of(const Options& options) {
  const PolicyInfo& info = find_policy(options.policy);
  return info.make(policy_options(options, info));
}

}  // namespace

// Each part has a type of its own, so the compiler refuses a wrong order.
Engine::Engine(const Options& options, Device& device)
    : context_(options, device),
      policy_(policy_of(options)),
      candidates_(policy_->needs(), context_.pool, context_.lineage,
                  {.moves = context_.move_price, .tier = context_.tier}, context_.now),
      verifier_(context_.options, device, context_.lineage, context_.stats),
      values_(context_, candidates_, verifier_),
      non_recomputables_(context_, values_),
      pages_(context_),
      enough_(context_),
      reporter_(context_, enough_),
      copies_(context_, values_),
      spiller_(context_, values_, copies_),
      evictor_(context_, values_, candidates_, *policy_, spiller_),
      mover_(context_, values_, pages_),
      importer_(context_, {values_, spiller_, pages_}),
      disturber_(context_, evictor_, mover_, reporter_),
      handover_(context_, values_, evictor_),
      room_(context_, {values_, non_recomputables_, pages_, evictor_, mover_, importer_, enough_,
                       reporter_, disturber_, handover_}),
      attempts_(context_, room_, handover_),
      replayer_({context_, values_, room_, evictor_, verifier_, disturber_, handover_, attempts_,
                 reporter_},
                non_recomputables_),
      freezer_(context_, {values_, non_recomputables_, mover_, room_, replayer_, spiller_}),
      records_(context_, {values_, candidates_, verifier_, mover_, room_, enough_}),
      write_behind_(context_, {values_, evictor_, spiller_, copies_}),
      read_ahead_(context_, {values_, pages_, enough_, evictor_, mover_, spiller_, copies_}),
      op_(context_, {values_, candidates_, evictor_, enough_, replayer_, freezer_, records_,
                     write_behind_, read_ahead_, handover_, reporter_}),
      in_parts_(context_, {values_, freezer_, replayer_, importer_, spiller_, reporter_, room_}),
      user_(context_, {values_, non_recomputables_, candidates_, evictor_, replayer_, freezer_,
                       pages_, reporter_}),
      schedule_(context_, values_, evictor_, replayer_) {
  context_.copy_wait = context_.copies = &copies_;
}

// The device's memory must not be freed while a copy uses it. The observer may be gone already.
Engine::~Engine() {
  context_.observer = nullptr;
  context_.victim_plan = nullptr;
  context_.forecast = nullptr;
  copies_.wait_for_all();
  context_.lineage.for_each_op([this](OpId, const Op& op) { context_.device.release(op.payload); });
  context_.lineage.for_each_value([this](ValueId, const Value& value) {
    if (value.external != nullptr) {
      context_.device.forget(value.external);
    }
  });
}

BlockId Engine::allocate(Bytes nbytes, std::optional<PoolOffset> at) {
  if (!context_.replaying) {
    enough_.allocate(context_.pool.round_up(nbytes));
  }
  const BlockId block = room_.take_block(nbytes, at).release();
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

BlockId Engine::reserve_bounce() {
  return allocate(bounce_size(context_.options, context_.budget - context_.outside));
}

StorageId Engine::storage_in(BlockId block) const {
  const ValueId owner = context_.pool.owner(block);
  return owner.valid() ? context_.lineage[owner].storage : StorageId();
}

StorageId Engine::storage_of(BlockId block) const {
  const ValueId owner = context_.pool.owner(block);
  const ValueId value = owner.valid() ? owner : context_.copies->read_into(block);
  return value.valid() ? context_.lineage[value].storage : StorageId();
}

StorageId Engine::adopt(const FreshStorage& fresh) {
  const StorageId storage = values_.add_storage(fresh);
  if (context_.observer != nullptr) {
    context_.observer->on_adopt(fresh, storage);
  }
  return storage;
}

StorageId Engine::add_external(void* handle, Bytes nbytes, Charge charge, SegmentId segment) {
  if (charge != Charge::kAmongOutside) {
    room_.charge_external(context_.pool.round_up(nbytes));
  }
  const OutsideStorage outside{.nbytes = nbytes,
                               .among_outside = charge == Charge::kAmongOutside,
                               .segment = segment,
                               .window = charge == Charge::kWindow};
  RECOUP_CHECK(outside.among_outside || !segment.valid());
  const StorageId storage = values_.add_external(handle, outside);
  context_.segments.place(handle, segment);
  if (context_.observer != nullptr) {
    context_.observer->on_external(storage, outside);
  }
  return storage;
}

StorageId Engine::revive_external(ValueId id) {
  const StorageId storage = values_.revive_external(id);
  if (context_.observer != nullptr) {
    const Value& revived = value(id);
    context_.observer->on_external(storage, {.nbytes = revived.nbytes,
                                             .among_outside = revived.flags.among_outside,
                                             .segment = context_.segments.of(revived.external)});
  }
  return storage;
}

void Engine::disown_external(StorageId storage) {
  const ValueId source = current(storage);
  const Dependents found = non_recomputables_.dependents(source);
  if (!found.needed.empty()) {
    throw std::runtime_error(
        "recoup: the memory of a tensor was replaced without recoup seeing it, but an evicted "
        "tensor must be recomputed from its old content. Replace it with tensor operations, or "
        "first call recoup.materialize on the tensors computed from it");
  }
  if (context_.observer != nullptr) {
    context_.observer->on_disown(storage);
  }
  non_recomputables_.freeze(source, found);
  let_go(storage);
}

void Engine::storage_died(StorageId storage) {
  if (context_.observer != nullptr) {
    context_.observer->on_death(storage);
  }
  let_go(storage);
}

void Engine::let_go(StorageId storage) {
  values_.take_copy(values_[storage]).reset();
  const ValueId id = values_.remove_storage(storage);
  const Value& value = context_.lineage[id];
  if (!context_.options.usefulness && value.evictable() && value.recomputable()) {
    values_.transition(id, Residency::kEvicted);
    ++context_.stats.drops;
  }
  if (!context_.lineage.has_consumers(id)) {
    values_.end(id);
    return;
  }
  if (!value.recomputable()) {
    non_recomputables_.consider(id);
  }
  values_.collect(id);
}

Stats Engine::stats() const {
  Stats stats = context_.stats;
  stats.budget_bytes = context_.budget.count();
  stats.resident_bytes = charged().count();
  stats.external_bytes = context_.charges.external.count();
  stats.plans = policy_->work().plans;
  stats.candidates_visited = policy_->work().visited;
  stats.candidates_scored = policy_->work().scored;
  stats.live_values = static_cast<std::int64_t>(context_.lineage.value_count());
  stats.live_ops = static_cast<std::int64_t>(context_.lineage.op_count());
  stats.metadata_bytes = static_cast<std::int64_t>(context_.lineage.memory() +
                                                   candidates_.memory() + context_.costs.memory()) +
                         context_.charges.device_metadata;
  stats.metadata_peak_bytes = std::max(context_.stats.metadata_peak_bytes, stats.metadata_bytes);
  if (context_.victim_plan != nullptr) {
    context_.victim_plan->add_to(stats);
  }
  return stats;
}

void Engine::check() const {
  context_.pool.check();
  context_.lineage.check();
  candidates_.check();
  values_.check(context_.running_op.empty() && !context_.replaying);
  context_.tier.check();
  copies_.check();
  pages_.check();
  RECOUP_CHECK(charged() <= context_.budget);
}

}  // namespace recoup::detail
