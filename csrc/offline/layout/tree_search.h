// TreeSearch: is there a layout that fits in a capacity? A complete search with a limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "csrc/offline/layout/infeasible_table.h"
#include "csrc/offline/layout/planner.h"

namespace recoup::detail {

// Note [Tree search]
// After M. D. Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine
// Learning" (ASPLOS 2023). Items are placed in the order of their offsets. Of all layouts that fit
// look at one whose offsets have the least sum. In it nothing can move down, so
//   - an item lies at its *floor*: 0 or the end of one below it (canonical order). One whose
//     floor is below the offset of the last decision still waits for something to lie under it;
//   - no item lies so high that another one that is still to come would fit below it (dominance):
//     only floors below the least end of all that is to come are tried;
//   - items at equal offsets can be placed in the order of their numbers, and of items that are
//     equal the first goes first.
// What is to come must fit on top: in every section the items, started no sooner than their floors,
// must end within the capacity (section inference; we sum them up in the order of floors, which is
// stronger than the lowest floor plus their sum). Parts that share no section any more are searched
// one by one, and when one of them is infeasible the decision before the split is wrong, not those
// of its neighbours (decomposition). Ours are: an item that meets all others of its part and has
// the lowest floor goes first without an alternative, for what lies below it can be swapped with
// it; and a part that was found infeasible is remembered.
//
// There is no recursion: each decision is a frame.
class TreeSearch {
 public:
  enum class Outcome : std::uint8_t { kFound, kInfeasible, kGaveUp };

  struct Limits {
    Units capacity = 0;
    std::int64_t nodes = 0;
    Deadline deadline;
  };

  // `items` ascend by lower.
  TreeSearch(std::span<const PlanItem> items, std::int32_t sections);

  // `order` has every item once: of equal floors the first in it is tried first.
  Outcome run(std::span<const std::uint32_t> order, const Limits& limits);
  // After kFound: an offset for each item.
  [[nodiscard]] const std::vector<Units>& offsets() const { return offset_; }
  // Of the last run: decisions that were tried, the most items that were in place at a time, and
  // how often each section was too full. Where the decision before failed too does not count.
  [[nodiscard]] std::int64_t nodes() const { return nodes_; }
  [[nodiscard]] std::int64_t most_placed() const { return most_placed_; }
  [[nodiscard]] std::span<const std::int64_t> fails() const { return fails_; }

 private:
  using Item = std::int32_t;  // its place in items_
  static constexpr Item kNobody = -1;
  static constexpr std::int32_t kNoRank = -1;

  struct Row {
    Units floor = 0;  // at least; see renew()
    Item item = kNobody;
    std::int32_t rank = kNoRank;  // the item's place in the order
    // While it waits for something to lie under it: what could do so and ends lowest.
    Item below = kNobody;

    [[nodiscard]] bool waits() const { return below != kNobody; }
  };
  // Items that hang together through sections.
  struct Part {
    std::uint32_t begin = 0;  // its rows in rows_, ascending by floor and rank
    std::uint32_t end = 0;
    Units offset = 0;             // of the decision above it
    std::int32_t last = kNoRank;  // the rank of that decision's item
  };
  struct Frame {
    Part part;
    InfeasibleTable::Key key;
    std::uint32_t next = 0;         // the row to try
    std::uint32_t candidates = 0;   // the end of the rows to try
    std::uint32_t parts_begin = 0;  // what its decision left, in parts_
    std::uint32_t next_part = 0;    //
    std::uint32_t parts_end = 0;    //
    std::uint32_t trail = 0;        // sizes of the stacks before its decision
    std::uint32_t rows = 0;         //
  };
  struct FloorChange {
    Item item = kNobody;
    Units floor = 0;  // before; -1: the item was placed
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
  std::vector<PlanItem> items_;
  std::vector<Item> twin_;                     // the equal item before it, or kNobody
  std::vector<std::uint32_t> neighbors_from_;  // into neighbors_
  std::vector<Item> neighbors_;                // who lives when it does

  // The state of the search.
  Limits limits_;
  std::vector<std::int32_t> rank_;
  std::vector<Units> floor_;   // the largest end of its placed neighbours
  std::vector<Units> offset_;  // of what is placed
  std::vector<bool> placed_;
  std::vector<FloorChange> trail_;
  std::vector<Row> rows_;
  std::vector<Part> parts_;
  std::vector<Frame> frames_;
  InfeasibleTable table_;  // of all runs: its keys hold the capacity
  std::int64_t nodes_ = 0;
  std::int64_t now_placed_ = 0;
  std::int64_t most_placed_ = 0;

  // Scratch, by section.
  std::vector<Units> end_;
  std::vector<std::int32_t> cover_;
  std::vector<std::int64_t> fails_;
  std::vector<Row> sorted_;
  std::vector<Row> changed_;
  std::vector<std::pair<Units, Units>> column_;  // floors and sizes
  std::int32_t last_fail_ = 0;                   // the section that was too full
};

}  // namespace recoup::detail
