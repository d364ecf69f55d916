#include "csrc/engine/reclaim/importer.h"

#include <algorithm>

namespace recoup::detail {

Importer::Importer(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      spiller_(parts.spiller),
      pages_(parts.pages) {}

void Importer::bring_in() {
  // A tier that was lent serves only values of the pool.
  if (context_.options.spill <= Bytes(0) || !context_.tier.open() ||
      left_ == context_.charges.external) {
    return;
  }
  const std::int64_t before = context_.stats.imports;
  for (const ValueId id : importable()) {
    if (!import(id)) {
      break;
    }
  }
  if (context_.stats.imports > before) {
    context_.device.taken_over();
  }
  left_ = context_.charges.external;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    const int by_user = value.storage.valid() ? values_[value.storage].user_pins : 0;
    if (value.external != nullptr && value.hard_pins > by_user) {
      left_.reset();
    }
  });
}

bool Importer::may_leave(const Value& value) const {
  return value.external != nullptr && !value.flags.among_outside && !value.escaped &&
         value.hard_pins == 0 && context_.tier.takes(value.nbytes);
}

std::vector<ValueId> Importer::importable() const {
  std::vector<ValueId> found;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (may_leave(value) && context_.device.hold(value.external)) {
      found.push_back(id);
    }
  });
  std::stable_sort(found.begin(), found.end(),
                   [this](ValueId a, ValueId b) { return lineage_[a].size > lineage_[b].size; });
  return found;
}

// False: neither the pool nor the tier has room.
bool Importer::import(ValueId id) {
  const Bytes size = lineage_[id].size;
  const bool fits = context_.shortfall(size) <= Bytes(0);
  if (const auto block = fits ? context_.pool.allocate(size, Zone::kLow) : std::nullopt) {
    put(id, *block);
  } else if (!spiller_.spill_outside(id)) {
    return false;
  }
  ++context_.stats.imports;
  context_.stats.imported_bytes += size.count();
  return true;
}

void Importer::put(ValueId id, BlockId block) {
  const PoolOffset to = context_.pool.offset(block);
  pages_.touch(to, lineage_[id].size);
  context_.count_peak();
  context_.device.copy(to, values_.location(id), lineage_[id].nbytes);
  values_.bring_in(id, block);
  if (context_.observer != nullptr) {
    context_.observer->on_move(id, to);
  }
}

}  // namespace recoup::detail
