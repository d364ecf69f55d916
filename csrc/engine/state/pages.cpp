#include "csrc/engine/state/pages.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "csrc/base/check.h"

namespace recoup::detail {

void Pages::touch(PoolOffset from, Bytes size) {
  footprint_.touch(from, size);
  fit();
}

void Pages::charged_outside() {
  if (footprint_.start(context_.addresses_end())) {
    fit();
  }
}

void Pages::count_from_start() {
  RECOUP_CHECK(context_.pool.free_bytes() == context_.pool.capacity(),
               "the pool has been used before its pages were counted");
  footprint_.start_untouched();
}

Bytes Pages::committed() const {
  const Bytes touched = footprint_.counting() ? footprint_.touched() : context_.addresses_end();
  return std::min(touched + context_.charges.external, context_.budget);
}

void Pages::shrunk(PoolOffset from, PoolOffset to) {
  if (context_.device.page_sizes().page <= Bytes(0)) {
    return;  // the device has no memory
  }
  const Footprint::Pages pages = footprint_.pages_in(from, to);
  if (pages.from < pages.to) {
    context_.device.discard(pages.from, pages.to);
  }
  if (pages.touched) {
    footprint_.discard(pages);
  }
  fit();
}

// Note [Footprint] in footprint.h. The page in which the pool ends counts as a whole.
void Pages::fit() {
  if (!footprint_.counting() || context_.charges.external == context_.outside) {
    return;
  }
  const Bytes over = footprint_.touched() + context_.charges.external - context_.budget;
  if (over <= Bytes(0)) {
    in_part_pages_ = Bytes(0);
  } else if (over > std::max(in_part_pages_, context_.device.page_sizes().page)) {
    give_back();
  }
}

// Starts beyond the end of the pool, then with the largest free ranges: they are few, and the next
// allocations use the smallest range that fits. Gives back slightly more than necessary, so that
// not every allocation gets here.
void Pages::give_back() {
  const auto start = std::chrono::steady_clock::now();
  constexpr std::int64_t kPart = 64;
  const Bytes budget = context_.budget;
  const Bytes external = context_.charges.external;
  const Bytes spare(budget.count() / kPart);
  std::vector<BlockView> free;
  for (BlockId block : context_.pool.free_blocks()) {
    free.push_back(context_.pool.view(block));
  }
  std::stable_sort(free.begin(), free.end(),
                   [](const BlockView& a, const BlockView& b) { return a.size > b.size; });
  // A first touch before the end of the pool may commit the rest of a huge page beyond. If the part
  // before the end were given back, the next touch would do so again.
  const std::int64_t huge = std::max(context_.device.page_sizes().huge, Bytes(1)).count();
  const PoolOffset end = context_.pool.capacity();
  const bool ends_before = end < context_.addresses_end();
  const PoolOffset last = ends_before ? Bytes(end.count() / huge * huge) : end;
  const Bytes most = budget - external - spare;
  give_back(end, Bytes((context_.addresses_end().count() + huge - 1) / huge * huge), most);
  for (const BlockView& block : free) {
    give_back(block.offset, std::min(block.offset + block.size, last), most);
  }
  in_part_pages_ = std::max(Bytes(0), footprint_.touched() + external + spare - budget);
  const Nanoseconds spent = std::chrono::steady_clock::now() - start;
  context_.room_time += spent;
  context_.stats.bookkeeping_ns += spent.count();
}

// Starts in the middle of the range, because allocations start at either end. Doubles the part each
// time, because some of its pages may have been given back before.
void Pages::give_back(PoolOffset from, PoolOffset to, Bytes most) {
  Bytes part{0};
  while (footprint_.touched() > most && from + part < to) {
    part = std::min(to - from, std::max(part + part, footprint_.touched() - most));
    const Footprint::Pages pages = footprint_.middle(from, to, part);
    if (pages.touched) {
      const Bytes before = footprint_.touched();
      context_.device.discard(pages.from, pages.to);
      footprint_.discard(pages);
      context_.stats.given_back_bytes += (before - footprint_.touched()).count();
    }
  }
}

void Pages::check() const {
  if (!footprint_.counting()) {
    return;
  }
  context_.lineage.for_each_value([this](ValueId id, const Value& value) {
    RECOUP_CHECK(!value.block.valid() || footprint_.covers(context_.pool.offset(value.block),
                                                           context_.pool.size(value.block)),
                 "value ", id.index(), " is in memory that was given back");
  });
}

}  // namespace recoup::detail
