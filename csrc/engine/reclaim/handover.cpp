#include "csrc/engine/reclaim/handover.h"

#include <algorithm>
#include <utility>

#include "csrc/base/at_end.h"
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
  value_ = id;
  nbytes_ = value.nbytes;
  offset_ = offset;
  offered_ = values_.charge_block(*block, size);
  return true;
}

bool Handover::offer_one(std::span<const ValueId> ids, std::optional<Bytes> asked) {
  return std::any_of(ids.begin(), ids.end(), [&](ValueId id) { return offer(id, asked); });
}

// The soft pin holds the value while it has no hard pin.
void Handover::evict(ValueId id) {
  const Values::SoftPin held = values_.pin_softly(id);
  values_.hard_unpin(id);
  context_.keep_bytes = true;
  const AtEnd pin_again([&] {
    context_.keep_bytes = false;
    values_.hard_pin(id);
  });
  if (context_.lineage[id].evictable()) {
    evictor_.evict(id);
  }
}

std::optional<BlockId> Handover::take(Bytes nbytes) {
  if (!offered_ || nbytes != nbytes_) {
    return std::nullopt;
  }
  return taken_ = values_.take_over(std::move(offered_));
}

bool Handover::is_among(std::span<const BlockId> results) const {
  return !taken_.valid() || std::find(results.begin(), results.end(), taken_) != results.end();
}

void Handover::end_well() {
  context_.stats.in_place_results += taken() ? 1 : 0;
  end();
}

void Handover::end() {
  offered_.reset();
  value_ = ValueId();
  taken_ = BlockId();
}

}  // namespace recoup::detail
