#include "csrc/engine/reclaim/importer.h"

#include <algorithm>
#include <utility>

#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

Importer::Importer(Context& context, const Parts& parts)
    : context_(context),
      lineage_(context.lineage),
      values_(parts.values),
      spiller_(parts.spiller),
      pages_(parts.pages) {}

bool Importer::bring_in() {
  // A tier that was lent serves only values of the pool.
  if (context_.options.spill <= Bytes(0) || !context_.tier.open() ||
      left_ == context_.charges.external) {
    return false;
  }
  const std::int64_t before = context_.stats.imports;
  left_ = Bytes(0);
  for (const ValueId id : importable()) {
    if (!lineage_.contains(id)) {
      continue;  // a copy that an earlier import waited for was its last user
    }
    if (!import(id) && lineage_.contains(id)) {
      break;
    }
  }
  if (context_.stats.imports > before) {
    context_.device.taken_over();
  }
  bool later = false;
  lineage_.for_each_value([&](ValueId, const Value& value) {
    later |= value.external != nullptr && !value.flags.among_outside && used_by_op(value);
  });
  if (!context_.segments.empty()) {
    later |= import_segments();
  }
  left_ = later ? std::nullopt : std::optional(context_.charges.external);
  return context_.stats.imports > before;
}

bool Importer::may_leave(const Value& value) const {
  return !value.escaped && value.hard_pins == 0 && !value.flags.stays && values_.tier_takes(value);
}

bool Importer::used_by_op(const Value& value) const {
  return value.hard_pins > (value.storage.valid() ? values_[value.storage].user_pins : 0);
}

std::vector<ValueId> Importer::importable() const {
  std::vector<ValueId> found;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.external != nullptr && !value.flags.among_outside && may_leave(value) &&
        context_.device.hold(value.external)) {
      found.push_back(id);
    }
  });
  std::stable_sort(found.begin(), found.end(),
                   [this](ValueId a, ValueId b) { return lineage_[a].size > lineage_[b].size; });
  return found;
}

// False: neither the pool nor the tier has room, or the value has ended: see Spiller::take_slot.
bool Importer::import(ValueId id) {
  const Bytes size = lineage_[id].size;
  if (NewBlock block = block_for(size)) {
    copy_to(block.id(), id);
    put(id, std::move(block));
  } else if (Spiller::OutsideCopy copy = spiller_.write_outside(id)) {
    spiller_.leave_outside(std::move(copy));
  } else {
    return false;
  }
  count(size);
  return true;
}

// Empty: the budget or the pool has no room.
NewBlock Importer::block_for(Bytes size) {
  const auto block = context_.shortfall(size) <= Bytes(0) ? context_.pool.allocate(size, Zone::kLow)
                                                          : std::nullopt;
  return block ? NewBlock(context_.pool, *block) : NewBlock();
}

void Importer::copy_to(BlockId block, ValueId id) {
  const PoolOffset to = context_.pool.offset(block);
  pages_.touch(to, lineage_[id].size);
  context_.count_peak();
  context_.device.copy(to, values_.location(id), lineage_[id].nbytes);
}

void Importer::put(ValueId id, NewBlock block) {
  const BlockId its = block.release();
  values_.bring_in(id, its);
  if (context_.observer != nullptr) {
    context_.observer->on_move(id, context_.pool.offset(its));
  }
}

void Importer::count(Bytes size) {
  ++context_.stats.imports;
  context_.stats.imported_bytes += size.count();
}

// ---- segments ----

void Importer::set_segment(const SegmentChange& change) {
  context_.segments.set_returnable(change.segment, change.returnable);
  left_.reset();
  if (context_.observer != nullptr) {
    context_.observer->on_segment(change);
  }
}

void Importer::update_segments() {
  if (context_.segments.empty() || segments().empty()) {
    return;
  }
  for (const SegmentChange& change : context_.device.changed_segments()) {
    set_segment(change);
  }
}

std::map<SegmentId, Importer::Segment> Importer::segments() const {
  std::map<SegmentId, Segment> found;
  lineage_.for_each_value([&](ValueId id, const Value& value) {
    if (value.external == nullptr || !value.flags.among_outside) {
      return;
    }
    const SegmentId segment = context_.segments.of(value.external);
    if (!segment.valid()) {
      return;
    }
    Segment& its = found[segment];
    its.values.push_back(id);
    const bool used = used_by_op(value);
    its.used |= used;
    its.stays |= !may_leave(value) && !used;
  });
  return found;
}

// Returns whether a segment may be imported when the running op has ended.
bool Importer::import_segments() {
  context_.copies->wait_for_all();  // the end of a copy may end values, also in a segment
  bool later = false;
  for (const auto& [segment, its] : segments()) {
    if (its.stays || context_.segments.returnable(segment) == Bytes(0)) {
      continue;
    }
    if (its.used || !hold(its.values)) {
      later = true;
    } else if (import_group(its.values)) {
      take_segment(segment);
    }
  }
  return later;
}

// False: the program has released one of them, which the engine learns when it sweeps.
bool Importer::hold(const Group& group) const {
  return std::all_of(group.begin(), group.end(),
                     [this](ValueId id) { return context_.device.hold(lineage_[id].external); });
}

// False, and nothing has changed: neither the pool nor the tier has room for all of them, or a
// write failed.
bool Importer::import_group(const Group& group) {
  std::vector<NewBlock> blocks = blocks_for(group);
  std::vector<Spiller::OutsideCopy> copies;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!blocks.empty()) {
      copy_to(blocks[i].id(), group[i]);
    } else if (!copies.emplace_back(spiller_.write_outside(group[i]))) {
      return false;
    }
  }
  context_.device.wait_for_outside();  // the device may release the memory without a wait
  for (std::size_t i = 0; i < group.size(); ++i) {
    count(lineage_[group[i]].size);
    if (blocks.empty()) {
      spiller_.leave_outside(std::move(copies[i]));
    } else {
      put(group[i], std::move(blocks[i]));
    }
  }
  return true;
}

// A block for each of them; empty: the pool has no room.
std::vector<NewBlock> Importer::blocks_for(const Group& group) {
  std::vector<NewBlock> blocks;
  for (const ValueId id : group) {
    if (!blocks.emplace_back(block_for(lineage_[id].size))) {
      return {};
    }
  }
  return blocks;
}

void Importer::take_segment(SegmentId segment) {
  const Bytes size = std::min(context_.segments.returnable(segment), context_.outside);
  context_.segments.set_returnable(segment, Bytes(0));
  context_.take_from_outside(context_.device.take_segment(size));
}

}  // namespace recoup::detail
