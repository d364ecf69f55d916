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
  if (footprint_.start(context_.pool.capacity())) {
    fit();
  }
}

void Pages::count_from_start() {
  RECOUP_CHECK(context_.pool.free_bytes() == context_.pool.capacity(),
               "the pool has been used before its pages were counted");
  footprint_.start_untouched();
}

Bytes Pages::committed() const {
  const Bytes touched = footprint_.counting() ? footprint_.touched() : context_.pool.capacity();
  return std::min(touched + context_.charges.external, context_.options.budget);
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

// Note [Footprint] in footprint.h.
void Pages::fit() {
  if (!footprint_.counting() || context_.charges.external == context_.options.outside) {
    return;
  }
  const Bytes over = footprint_.touched() + context_.charges.external - context_.options.budget;
  if (over <= Bytes(0)) {
    in_part_pages_ = Bytes(0);
  } else if (over > in_part_pages_) {
    give_back();
  }
}

// Starts with the largest free ranges: they are few, and the next allocations use the smallest
// range that fits. Gives back slightly more than necessary, so that not every allocation gets here.
void Pages::give_back() {
  const auto start = std::chrono::steady_clock::now();
  constexpr std::int64_t kPart = 64;
  const Bytes budget = context_.options.budget;
  const Bytes external = context_.charges.external;
  const Bytes spare(budget.count() / kPart);
  std::vector<BlockView> free;
  for (BlockId block : context_.pool.free_blocks()) {
    free.push_back(context_.pool.view(block));
  }
  std::stable_sort(free.begin(), free.end(),
                   [](const BlockView& a, const BlockView& b) { return a.size > b.size; });
  for (const BlockView& block : free) {
    give_back(block, budget - external - spare);
  }
  in_part_pages_ = std::max(Bytes(0), footprint_.touched() + external + spare - budget);
  const Nanoseconds spent = std::chrono::steady_clock::now() - start;
  context_.room_time += spent;
  context_.stats.bookkeeping_ns += spent.count();
}

// Starts in the middle of the range, because allocations start at either end. Doubles the part each
// time, because some of its pages may have been given back before.
void Pages::give_back(const BlockView& free, Bytes most) {
  Bytes part{0};
  while (footprint_.touched() > most && part < free.size) {
    part = std::min(free.size, std::max(part + part, footprint_.touched() - most));
    const Footprint::Pages pages = footprint_.middle(free.offset, free.offset + free.size, part);
    if (pages.touched) {
      context_.device.discard(pages.from, pages.to);
      footprint_.discard(pages);
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
