#include "csrc/layout/tree_search.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "csrc/base/check.h"

namespace recoup::detail {
namespace {

std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

}  // namespace

TreeSearch::TreeSearch(std::span<const LayoutItem> items, std::int32_t sections,
                       std::span<const Units> taken, std::size_t remembered)
    : items_(items.begin(), items.end()),
      taken_(taken.begin(), taken.end()),
      rank_(items.size()),
      floor_(items.size()),
      offset_(items.size()),
      placed_(items.size()),
      table_(remembered),
      end_(static_cast<std::size_t>(sections)),
      cover_(static_cast<std::size_t>(sections) + 1),
      fails_(static_cast<std::size_t>(sections)) {
  uniform_ = taken_.empty();
  taken_.resize(static_cast<std::size_t>(sections));
  const std::size_t count = items_.size();
  std::vector<std::vector<Item>> neighbors(count);
  twin_.assign(count, kNone);
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = a + 1; b < count && items_[b].lower < items_[a].upper; ++b) {
      neighbors[a].push_back(static_cast<Item>(b));
      neighbors[b].push_back(static_cast<Item>(a));
      if (std::tie(items_[a].lower, items_[a].upper, items_[a].size) ==
          std::tie(items_[b].lower, items_[b].upper, items_[b].size)) {
        twin_[b] = static_cast<Item>(a);
      }
    }
  }
  for (const std::vector<Item>& list : neighbors) {
    neighbors_from_.push_back(static_cast<std::uint32_t>(neighbors_.size()));
    neighbors_.insert(neighbors_.end(), list.begin(), list.end());
  }
  neighbors_from_.push_back(static_cast<std::uint32_t>(neighbors_.size()));
}

void TreeSearch::start(std::span<const std::uint32_t> order, const Limits& limits) {
  RECOUP_CHECK(order.size() == items_.size());
  limits_ = limits;
  nodes_ = now_placed_ = most_placed_ = 0;
  std::fill(floor_.begin(), floor_.end(), 0);
  std::fill(placed_.begin(), placed_.end(), false);
  std::fill(fails_.begin(), fails_.end(), 0);
  trail_.clear();
  rows_.clear();
  parts_.clear();
  frames_.assign(1, Frame{});
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    rank_[order[rank]] = static_cast<std::int32_t>(rank);
    rows_.push_back({.floor = 0,
                     .item = static_cast<Item>(order[rank]),
                     .rank = static_cast<std::int32_t>(rank),
                     .below = kNone});
  }
}

// The first frame has no decision: its parts are those of the whole problem.
TreeSearch::Outcome TreeSearch::run(std::span<const std::uint32_t> order, const Limits& limits) {
  start(order, limits);
  if (!fits(0, 0, static_cast<std::int32_t>(end_.size()))) {
    return Outcome::kInfeasible;
  }
  add_parts(0, 0, kNoRank);
  frames_[0].parts_end = static_cast<std::uint32_t>(parts_.size());

  while (true) {
    Frame& frame = frames_.back();
    if (frame.next_part < frame.parts_end) {  // the decision is not refuted so far
      if (push(parts_[frame.next_part++]) && decide(frames_.back())) {
        continue;
      }
    } else if (frames_.size() == 1) {
      return Outcome::kFound;
    } else {  // all its parts are solved
      frames_.pop_back();
      continue;
    }
    // The last frame has no candidate left, or its part is known to be infeasible, so the decision
    // above it was wrong.
    do {
      if (out_of_limits()) {
        return Outcome::kGaveUp;
      }
      table_.insert(frames_.back().key);
      frames_.pop_back();
      if (frames_.size() == 1) {
        return Outcome::kInfeasible;
      }
    } while (!decide(frames_.back()));
    if (out_of_limits()) {
      return Outcome::kGaveUp;
    }
  }
}

bool TreeSearch::out_of_limits() {
  constexpr std::int64_t kNodesPerLook = 64;  // clock readings are this many nodes apart
  if (nodes_ >= limits_.nodes) {
    return true;
  }
  return limits_.deadline && nodes_ % kNodesPerLook == 0 &&
         std::chrono::steady_clock::now() >= *limits_.deadline;
}

// Adds a frame for a part. Returns false if the part is known to be infeasible; the frame is added
// in either case.
bool TreeSearch::push(const Part& part) {
  Frame& frame = frames_.emplace_back();
  frame.part = part;
  frame.key = key_of(part);
  frame.trail = static_cast<std::uint32_t>(trail_.size());
  frame.rows = static_cast<std::uint32_t>(rows_.size());
  frame.parts_begin = static_cast<std::uint32_t>(parts_.size());
  frame.next_part = frame.parts_end = frame.parts_begin;
  choose_candidates(frame);
  return !table_.contains(frame.key);
}

// Note [Tree search] explains each rule.
void TreeSearch::choose_candidates(Frame& frame) const {
  const Part& part = frame.part;
  Units least_end = std::numeric_limits<Units>::max();
  std::int32_t last_lower = 0;
  std::int32_t first_upper = std::numeric_limits<std::int32_t>::max();
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    const LayoutItem& item = items_[index(rows_[i].item)];
    least_end = std::min(least_end, rows_[i].floor + item.size);
    last_lower = std::max(last_lower, item.lower);
    first_upper = std::min(first_upper, item.upper);
  }
  frame.next = part.begin;
  frame.candidates = part.begin;
  const Units lowest = rows_[part.begin].floor;
  for (std::uint32_t i = part.begin; i < part.end && rows_[i].floor < least_end; ++i) {
    frame.candidates = i + 1;
    const LayoutItem& item = items_[index(rows_[i].item)];
    const bool meets_all = item.lower < first_upper && last_lower < item.upper;
    if (uniform_ && meets_all && rows_[i].floor == lowest && !rows_[i].waits() &&
        !twin_is_first(rows_[i])) {
      frame.next = i;  // this candidate only
      return;
    }
  }
}

bool TreeSearch::twin_is_first(const Row& row) const {
  const Item twin = twin_[index(row.item)];
  return twin != kNone && !placed_[index(twin)];
}

bool TreeSearch::is_tried_elsewhere(const Frame& frame, const Row& row) const {
  return row.waits() || twin_is_first(row) || is_before_last(frame.part, row);
}

// Items at equal offsets are placed in the order of their ranks.
bool TreeSearch::is_before_last(const Part& part, const Row& row) {
  return row.floor == part.offset && row.rank < part.last;
}

// Takes the next candidate whose consequences are not obviously infeasible. Returns false if there
// is none.
bool TreeSearch::decide(Frame& frame) {
  while (frame.next < frame.candidates) {
    undo(frame);
    const Row row = rows_[frame.next++];
    if (is_tried_elsewhere(frame, row)) {
      continue;
    }
    ++nodes_;
    place(row.item, row.floor);
    if (split(frame.part, row.item, row.floor)) {
      frame.next_part = frame.parts_begin;
      frame.parts_end = static_cast<std::uint32_t>(parts_.size());
      return true;
    }
  }
  undo(frame);
  return false;
}

void TreeSearch::place(Item item, Units offset) {
  const std::size_t at = index(item);
  offset_[at] = offset;
  placed_[at] = true;
  most_placed_ = std::max(most_placed_, ++now_placed_);
  trail_.push_back({.item = item, .floor = -1});
  const Units end = offset + items_[at].size;
  for (std::uint32_t i = neighbors_from_[at]; i < neighbors_from_[at + 1]; ++i) {
    const std::size_t neighbor = index(neighbors_[i]);
    if (!placed_[neighbor] && floor_[neighbor] < end) {
      trail_.push_back({.item = neighbors_[i], .floor = floor_[neighbor]});
      floor_[neighbor] = end;
    }
  }
}

// Restores the state before the frame's decision.
void TreeSearch::undo(const Frame& frame) {
  while (trail_.size() > frame.trail) {
    const FloorChange change = trail_.back();
    trail_.pop_back();
    if (change.floor < 0) {
      placed_[index(change.item)] = false;
      --now_placed_;
    } else {
      floor_[index(change.item)] = change.floor;
    }
  }
  rows_.resize(frame.rows);
  parts_.resize(frame.parts_begin);
}

// Adds the parts that remain of `part` after the placement of `placed`. Returns false if one of
// them cannot fit.
bool TreeSearch::split(const Part& part, Item placed, Units offset) {
  if (!fits_last_fail(part, placed, offset)) {
    return false;
  }
  const auto begin = static_cast<std::uint32_t>(rows_.size());
  std::int32_t lower = items_[index(placed)].lower;
  std::int32_t upper = items_[index(placed)].upper;
  changed_.clear();
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    if (Row row = rows_[i]; row.item != placed) {
      if (renew(row, offset)) {
        changed_.push_back(row);
        lower = std::min(lower, items_[index(row.item)].lower);
        upper = std::max(upper, items_[index(row.item)].upper);
      } else {
        rows_.push_back(row);
      }
    }
  }
  merge_changed(begin);
  if (!fits(begin, lower, upper)) {  // no other section has changed
    return false;
  }
  add_parts(begin, offset, rank_[index(placed)]);
  return true;
}

// Updates the row's floor after a decision at `offset`. An item that waits will lie on an item that
// is still to be placed, so its floor is at least the end of that one. Returns false if nothing has
// changed.
bool TreeSearch::renew(Row& row, Units offset) const {
  const std::size_t at = index(row.item);
  const Row before = row;
  if (floor_[at] >= offset) {
    row.floor = floor_[at];
    row.below = kNone;
    return row.floor != before.floor || before.below != kNone;
  }
  const auto end_of = [&](Item item) {
    return std::max(floor_[index(item)], offset) + items_[index(item)].size;
  };
  // Ends only rise: while the lowest end has not risen, it stays the lowest.
  if (row.waits() && !placed_[index(row.below)] && end_of(row.below) == row.floor) {
    return false;
  }
  row.floor = limits_.capacity + 1;  // if no item can lie under it
  for (std::uint32_t k = neighbors_from_[at]; k < neighbors_from_[at + 1]; ++k) {
    if (!placed_[index(neighbors_[k])]) {
      if (const Units end = end_of(neighbors_[k]); end < row.floor) {
        row.floor = end;
        row.below = neighbors_[k];
      }
    }
  }
  return true;
}

// Merges the changed rows into the rows from `begin` on.
void TreeSearch::merge_changed(std::uint32_t begin) {
  const auto before = [](const Row& a, const Row& b) {
    return std::tie(a.floor, a.rank) < std::tie(b.floor, b.rank);
  };
  std::sort(changed_.begin(), changed_.end(), before);
  std::size_t kept = rows_.size();
  rows_.resize(kept + changed_.size());
  for (std::size_t to = rows_.size(), left = changed_.size(); left > 0;) {
    const bool take_kept = kept > begin && before(changed_[left - 1], rows_[kept - 1]);
    rows_[--to] = take_kept ? rows_[--kept] : changed_[--left];
  }
}

// Section inference: whether in every section of [lower, upper) the remaining items fit, each no
// lower than its floor.
bool TreeSearch::fits(std::uint32_t begin, std::int32_t lower, std::int32_t upper) {
  std::fill(end_.begin() + lower, end_.begin() + upper, 0);
  for (std::size_t i = begin; i < rows_.size(); ++i) {
    const LayoutItem& item = items_[index(rows_[i].item)];
    const std::int32_t last = std::min(item.upper, upper);
    for (std::int32_t s = std::max(item.lower, lower); s < last; ++s) {
      Units& end = end_[index(s)];
      end = std::max(end, rows_[i].floor) + item.size;
      if (end > limits_.capacity - taken_[index(s)]) {
        ++fails_[index(s)];
        last_fail_ = s;
        return false;
      }
    }
  }
  return true;
}

// Most decisions fail in the same section as the previous one. Checking it first needs no new rows,
// whose construction takes most of the time.
bool TreeSearch::fits_last_fail(const Part& part, Item placed, Units offset) {
  column_.clear();
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    const std::size_t at = index(rows_[i].item);
    const LayoutItem& item = items_[at];
    if (item.lower <= last_fail_ && last_fail_ < item.upper && rows_[i].item != placed) {
      column_.emplace_back(std::max({rows_[i].floor, floor_[at], offset}), item.size);
    }
  }
  std::sort(column_.begin(), column_.end());
  Units end = 0;
  for (const auto& [floor, size] : column_) {
    end = std::max(end, floor) + size;
  }
  return end <= limits_.capacity - taken_[index(last_fail_)];
}

// Splits the rows from `begin` on wherever no item crosses from one section to the next.
void TreeSearch::add_parts(std::uint32_t begin, Units offset, std::int32_t last) {
  const auto end = static_cast<std::uint32_t>(rows_.size());
  if (begin == end) {
    return;
  }
  std::fill(cover_.begin(), cover_.end(), 0);
  for (std::uint32_t i = begin; i < end; ++i) {  // the number of items that cross into each section
    const LayoutItem& item = items_[index(rows_[i].item)];
    ++cover_[index(item.lower) + 1];
    --cover_[index(item.upper)];
  }
  std::int32_t crossing = 0;
  std::int32_t part = -1;
  for (std::int32_t& at : cover_) {  // then the part that each section is in
    crossing += at;
    part += crossing == 0 ? 1 : 0;
    at = part;
  }
  const auto part_of = [&](const Row& row) { return cover_[index(items_[index(row.item)].lower)]; };
  sorted_.assign(rows_.begin() + begin, rows_.end());
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [&](const Row& a, const Row& b) { return part_of(a) < part_of(b); });
  std::copy(sorted_.begin(), sorted_.end(), rows_.begin() + begin);
  for (std::uint32_t i = begin; i < end;) {
    std::uint32_t next = i + 1;
    while (next < end && part_of(rows_[next]) == part_of(rows_[i])) {
      ++next;
    }
    parts_.push_back({.begin = i, .end = next, .offset = offset, .last = last});
    i = next;
  }
}

// A key for everything that the search of a part depends on.
InfeasibleTable::Key TreeSearch::key_of(const Part& part) const {
  InfeasibleTable::Key key;
  key.add(~std::uint64_t{0}, static_cast<std::uint64_t>(limits_.capacity));
  for (std::uint32_t i = part.begin; i < part.end; ++i) {
    const Row& row = rows_[i];
    // Whether the item may be placed next: the order of items has no other influence.
    const std::uint64_t barred = row.waits() || is_before_last(part, row) ? 1 : 0;
    key.add(index(row.item), 2 * static_cast<std::uint64_t>(row.floor) + barred);
  }
  return key;
}

}  // namespace recoup::detail
