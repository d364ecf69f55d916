// TreeSearch: a complete search, with limits, for a layout that fits in a capacity.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "csrc/layout/infeasible_table.h"
#include "csrc/layout/items.h"

namespace recoup::detail {

// Note [Tree search]
// After M. D. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine
// Learning" (ASPLOS 2023). Items are placed in the order of their offsets. Of all layouts that fit,
// consider one whose sum of offsets is minimal. In it no item can move down, so
//   - an item lies at its *floor*: 0 or the end of an item below it (canonical order). An item
//     whose floor is below the offset of the last decision still waits for an item to lie under it;
//   - no item lies so high that a remaining item would fit below it (dominance): only floors below
//     the least end of all remaining items are tried;
//   - items at equal offsets can be placed in the order of their ranks, and the first of equal
//     items is placed first.
// The remaining items must fit above: in every section they must end within the capacity when each
// starts no lower than its floor (section inference; here they are summed up in the order of
// floors, which is stronger than the lowest floor plus their sum). Parts that share no section any
// more are searched one by one. When one of them is infeasible, the decision before the split is
// wrong, not those of its neighbors (decomposition). Two rules are not in MiniMalloc: an item that
// overlaps all others of its part in time and has the lowest floor is placed first without an
// alternative, because the items below it can be swapped with it; and a part that was found
// infeasible is remembered.
//
// Where units at the high end are taken already, a section has less capacity than others. Then an
// item may not be swapped with those below it, so the first of the two additional rules does not
// hold, and is not used.
//
// The search has no recursion: each decision is a frame.
class RECOUP_API TreeSearch {
 public:
  enum class Outcome : std::uint8_t { kFound, kInfeasible, kGaveUp };

  struct Limits {
    Units capacity = 0;
    std::int64_t nodes = 0;
    Deadline deadline;
  };

  // Number of infeasible parts that are remembered, in a search of minutes.
  static constexpr std::size_t kMostRemembered = std::size_t{1} << 19;
  // `items` must be sorted by `lower`. `taken`: see LayoutInput. `remembered`: a power of two.
  TreeSearch(std::span<const LayoutItem> items, std::int32_t sections,
             std::span<const Units> taken = {}, std::size_t remembered = kMostRemembered);

  // `order` holds every item once. Among candidates with equal floors it decides which is tried
  // first.
  Outcome run(std::span<const std::uint32_t> order, const Limits& limits);
  // Valid after kFound: an offset for each item.
  [[nodiscard]] const std::vector<Units>& offsets() const { return offset_; }
  // Statistics of the last run: decisions that were tried, the most items that were in place at the
  // same time, and how often each section was too full. A failure in the same section as the
  // previous one is not counted.
  [[nodiscard]] std::int64_t nodes() const { return nodes_; }
  [[nodiscard]] std::int64_t most_placed() const { return most_placed_; }
  [[nodiscard]] std::span<const std::int64_t> fails() const { return fails_; }

 private:
  using Item = std::int32_t;  // index into items_
  static constexpr Item kNone = -1;
  static constexpr std::int32_t kNoRank = -1;

  struct Row {
    Units floor = 0;  // a lower bound; see renew()
    Item item = kNone;
    std::int32_t rank = kNoRank;  // the item's position in the order
    // Set while the item waits for an item to lie under it: the one that can do so and ends lowest.
    Item below = kNone;

    [[nodiscard]] bool waits() const { return below != kNone; }
  };
  // Items that are connected through shared sections.
  struct Part {
    std::uint32_t begin = 0;  // its rows in rows_, ascending by floor and rank
    std::uint32_t end = 0;
    Units offset = 0;             // of the decision above it
    std::int32_t last = kNoRank;  // of that decision's item
  };
  struct Frame {
    Part part;
    InfeasibleTable::Key key;
    std::uint32_t next = 0;         // the next row to try
    std::uint32_t candidates = 0;   // the end of the rows to try
    std::uint32_t parts_begin = 0;  // the remaining parts after its decision, in parts_
    std::uint32_t next_part = 0;    //
    std::uint32_t parts_end = 0;    //
    std::uint32_t trail = 0;        // sizes of the stacks before its decision
    std::uint32_t rows = 0;         //
  };
  struct FloorChange {
    Item item = kNone;
    Units floor = 0;  // previous floor; -1: the item was placed
  };

  void start(std::span<const std::uint32_t> order, const Limits& limits);
  bool push(const Part& part);
  void choose_candidates(Frame& frame) const;
  bool decide(Frame& frame);
  [[nodiscard]] bool is_tried_elsewhere(const Frame& frame, const Row& row) const;
  [[nodiscard]] bool twin_is_first(const Row& row) const;
  static bool is_before_last(const Part& part, const Row& row);
  void place(Item item, Units offset);
  void undo(const Frame& frame);
  bool split(const Part& part, Item placed, Units offset);
  void add_parts(std::uint32_t begin, Units offset, std::int32_t last);
  bool renew(Row& row, Units offset) const;
  void merge_changed(std::uint32_t begin);
  bool fits(std::uint32_t begin, std::int32_t lower, std::int32_t upper);
  bool fits_last_fail(const Part& part, Item placed, Units offset);
  bool out_of_limits();
  [[nodiscard]] InfeasibleTable::Key key_of(const Part& part) const;

  // The problem.
  std::vector<LayoutItem> items_;
  std::vector<Units> taken_;                   // by section
  bool uniform_ = true;                        // the capacity is the same in all sections
  std::vector<Item> twin_;                     // the previous identical item, or kNone
  std::vector<std::uint32_t> neighbors_from_;  // index into neighbors_
  std::vector<Item> neighbors_;                // items whose lifetimes overlap, for each item

  // The state of the search.
  Limits limits_;
  std::vector<std::int32_t> rank_;
  std::vector<Units> floor_;   // by item: the largest end of its placed neighbors
  std::vector<Units> offset_;  // by item, valid if placed
  std::vector<bool> placed_;
  std::vector<FloorChange> trail_;
  std::vector<Row> rows_;
  std::vector<Part> parts_;
  std::vector<Frame> frames_;
  InfeasibleTable table_;  // for all runs: its keys include the capacity
  std::int64_t nodes_ = 0;
  std::int64_t now_placed_ = 0;
  std::int64_t most_placed_ = 0;

  // Scratch buffers; the first three are by section.
  std::vector<Units> end_;
  std::vector<std::int32_t> cover_;
  std::vector<std::int64_t> fails_;
  std::vector<Row> sorted_;
  std::vector<Row> changed_;
  std::vector<std::pair<Units, Units>> column_;  // (floor, size) of the items in last_fail_
  std::int32_t last_fail_ = 0;                   // the section that was too full
};

}  // namespace recoup::detail
