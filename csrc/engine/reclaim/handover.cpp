#include "csrc/engine/reclaim/handover.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail {

Handover::Handover(Context& context, Values& values, Evictor& evictor)
    : context_(context), pool_(context.pool), values_(values), evictor_(evictor) {}

bool Handover::offer(ValueId id, std::optional<Bytes> asked) {
  RECOUP_CHECK(!value_.valid());
  const Value& value = context_.lineage[id];
  const bool can_be_evicted = (value.spillable || value.recomputable()) && value.resident() &&
                              value.block.valid() && !value.escaped && !value.copying;
  if (!can_be_evicted || value.hard_pins != 1 || (asked && value.size != pool_.round_up(*asked))) {
    return false;
  }
  const PoolOffset offset = pool_.offset(value.block);
  const Bytes size = value.size;
  evict(id);
  if (context_.lineage[id].resident()) {
    return false;
  }
  const std::optional<BlockId> block = pool_.allocate_at(offset, size);
  RECOUP_CHECK(block.has_value(), "the block of an evicted operand is in use");
  context_.charges.add_kernel_block(size);
  value_ = id;
  nbytes_ = value.nbytes;
  offset_ = offset;
  offered_ = *block;
  return true;
}

bool Handover::offer_one(std::span<const ValueId> ids, std::optional<Bytes> asked) {
  return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return offer(id, asked); });
}

// The soft pin holds the value while it has no hard pin.
void Handover::evict(ValueId id) {
  values_.soft_pin(id);
  values_.hard_unpin(id);
  context_.keep_bytes = true;
  const auto pin_again = [&] {
    context_.keep_bytes = false;
    values_.hard_pin(id);
    values_.soft_unpin(id);
  };
  try {
    if (context_.lineage[id].evictable()) {
      evictor_.evict(id);
    }
  } catch (...) {
    pin_again();
    throw;
  }
  pin_again();
}

std::optional<BlockId> Handover::take(Bytes nbytes) {
  if (!offered_.valid() || nbytes != nbytes_) {
    return std::nullopt;
  }
  context_.charges.remove_kernel_block(pool_.size(offered_));  // the allocation adds it again
  taken_ = std::exchange(offered_, BlockId());
  return taken_;
}

bool Handover::is_among(std::span<const BlockId> results) const {
  return !taken_.valid() || std::find(results.begin(), results.end(), taken_) != results.end();
}

void Handover::require_among(std::span<const BlockId> results,
                             const OutOfBudgetReporter& reporter) {
  if (is_among(results)) {
    return;
  }
  for (const BlockId block : results) {
    if (block.valid()) {
      values_.free_kernel_block(block);
    }
  }
  reporter.fail(Bytes(0), kNotTaken);
}

void Handover::end_well() {
  context_.stats.in_place_results += taken() ? 1 : 0;
  end();
}

void Handover::end() {
  if (offered_.valid()) {
    values_.free_kernel_block(offered_);
  }
  value_ = ValueId();
  offered_ = taken_ = BlockId();
}

}  // namespace recoup::detail
