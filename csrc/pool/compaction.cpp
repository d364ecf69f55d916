// Note [Compaction]
// `#` is immovable, letters are movable blocks, `.` is free; 4 bytes are requested.
//
//   slide       #aa..bb..#   ->   #aabb....#       moves the blocks between two free blocks
//   relocate    #aa..#bb..ccc#   moves aa to the hole after bb:   #....#bbaaccc#
//   both        slides everything down first, which makes larger holes, then relocates
//
// Slides and relocations are searched over all windows, and the cheapest plan wins. The cost of a
// move is its bytes plus a constant. If no window suffices, everything is slid and the search is
// repeated. So free bytes between the same two immovable blocks always end up in one block.
#include "csrc/pool/compaction.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace recoup::detail {
namespace {

std::int64_t cost_of(const Compaction& plan, std::int64_t a_move) {
  return plan.moved.count() + static_cast<std::int64_t>(plan.moves.size()) * a_move;
}

// Slides the movable pieces of [begin, end) together at the low end.
Compaction slide_window(const std::vector<Piece>& layout, std::size_t begin, std::size_t end) {
  Compaction plan;
  std::int64_t to = layout[begin].offset;
  for (std::size_t i = begin; i < end; ++i) {
    const Piece& piece = layout[i];
    if (piece.free) {
      continue;
    }
    if (piece.offset != to) {
      plan.moves.push_back({.block = piece.block, .to = Bytes(to)});
      plan.moved += Bytes(piece.size);
    }
    to += piece.size;
  }
  return plan;
}

// The cheapest slide of a window that holds `size` free bytes. A window reaches from one free piece
// to another, with no immovable piece between.
std::optional<Compaction> cheapest_slide(const std::vector<Piece>& layout, std::int64_t size,
                                         std::int64_t a_move) {
  std::size_t begin = 0;
  std::int64_t free = 0;
  std::int64_t cost = 0;
  std::int64_t best = 0;
  std::optional<std::pair<std::size_t, std::size_t>> window;
  for (std::size_t end = 0; end < layout.size(); ++end) {
    const Piece& piece = layout[end];
    if (piece.starts_segment || (!piece.free && !piece.movable)) {
      begin = piece.free || piece.movable ? end : end + 1;
      free = cost = 0;
    }
    if (!piece.free && !piece.movable) {
      continue;
    }
    (piece.free ? free : cost) += piece.free ? piece.size : piece.size + a_move;
    while (begin < end && (!layout[begin].free || free - layout[begin].size >= size)) {
      const Piece& first = layout[begin];
      (first.free ? free : cost) -= first.free ? first.size : first.size + a_move;
      ++begin;
    }
    if (free >= size && (!window || cost < best)) {
      best = cost;
      window = {begin, end + 1};
    }
  }
  if (!window) {
    return std::nullopt;
  }
  return slide_window(layout, window->first, window->second);
}

using Hole = CompactionScratch::Hole;
using MoveWindow = CompactionScratch::Window;

bool smaller(const Hole& a, const Hole& b) { return a.size < b.size; }

void index_holes(const std::vector<Piece>& layout, CompactionScratch& scratch) {
  scratch.holes.clear();
  scratch.free = 0;
  for (const Piece& piece : layout) {
    if (piece.free) {
      scratch.holes.push_back({.size = piece.size, .offset = piece.offset});
      scratch.free += piece.size;
    }
  }
  std::stable_sort(scratch.holes.begin(), scratch.holes.end(), smaller);
}

// Fills a hole at this index with `size` bytes.
void fill(CompactionScratch& scratch, std::ptrdiff_t at, std::int64_t size) {
  std::vector<Hole>& holes = scratch.holes;
  const Hole hole = holes[static_cast<std::size_t>(at)];
  holes.erase(holes.begin() + at);
  std::optional<std::ptrdiff_t> rest;
  if (hole.size > size) {
    const Hole left{.size = hole.size - size, .offset = hole.offset + size};
    const auto place = std::upper_bound(holes.begin(), holes.end(), left, smaller);
    rest = holes.insert(place, left) - holes.begin();
  }
  scratch.filled.push_back({.hole = hole, .at = at, .rest = rest});
}

void empty_filled(CompactionScratch& scratch) {
  std::vector<Hole>& holes = scratch.holes;
  for (; !scratch.filled.empty(); scratch.filled.pop_back()) {
    const CompactionScratch::Filled& last = scratch.filled.back();
    if (last.rest) {
      holes.erase(holes.begin() + *last.rest);
    }
    holes.insert(holes.begin() + last.at, last.hole);
  }
}

// Finds a hole outside [begin, end) for each movable piece inside: largest first, best fit. The
// scratch has the holes of the layout, before and after.
std::optional<Compaction> relocate_window(const std::vector<Piece>& layout, std::size_t begin,
                                          std::size_t end, CompactionScratch& scratch) {
  const std::int64_t low = layout[begin].offset;
  const std::int64_t high = layout[end - 1].offset + layout[end - 1].size;
  std::vector<const Piece*>& leaving = scratch.leaving;
  leaving.clear();
  std::int64_t taken = 0;  // bytes in the window
  std::int64_t free = 0;
  for (std::size_t i = begin; i < end; ++i) {
    (layout[i].free ? free : taken) += layout[i].size;
    if (!layout[i].free) {
      leaving.push_back(&layout[i]);
    }
  }
  if (taken > scratch.free - free) {
    return std::nullopt;
  }
  std::stable_sort(leaving.begin(), leaving.end(),
                   [](const Piece* a, const Piece* b) { return a->size > b->size; });
  const std::vector<Hole>& holes = scratch.holes;
  std::optional<Compaction> plan(std::in_place);
  for (const Piece* piece : leaving) {
    const auto hole = std::find_if(
        std::lower_bound(holes.begin(), holes.end(), Hole{.size = piece->size, .offset = 0},
                         smaller),
        holes.end(), [&](const Hole& each) { return each.offset < low || each.offset >= high; });
    if (hole == holes.end()) {
      plan.reset();
      break;
    }
    plan->moves.push_back({.block = piece->block, .to = Bytes(hole->offset)});
    plan->moved += Bytes(piece->size);
    fill(scratch, hole - holes.begin(), piece->size);
  }
  empty_filled(scratch);
  return plan;
}

// Windows of at least `size` bytes that cost at most `limit`, have no immovable piece, and would be
// too small without their first piece.
void find_windows(const std::vector<Piece>& layout, std::int64_t size, std::int64_t a_move,
                  std::int64_t limit, std::vector<MoveWindow>& windows) {
  windows.clear();
  std::size_t begin = 0;
  std::int64_t total = 0;
  std::int64_t cost = 0;
  for (std::size_t end = 0; end < layout.size(); ++end) {
    const Piece& piece = layout[end];
    const bool clearable = piece.free || piece.movable;
    if (piece.starts_segment || !clearable) {
      begin = clearable ? end : end + 1;
      total = cost = 0;
    }
    if (!clearable) {
      continue;
    }
    total += piece.size;
    cost += piece.free ? 0 : piece.size + a_move;
    while (total - layout[begin].size >= size) {
      total -= layout[begin].size;
      cost -= layout[begin].free ? 0 : layout[begin].size + a_move;
      ++begin;
    }
    if (total >= size && cost <= limit) {
      windows.push_back({begin, end + 1, cost});
    }
  }
}

// Tries windows in order of cost. Stops after a fixed number of tries: the remaining windows are
// the expensive ones.
std::optional<Compaction> cheapest_relocation(const std::vector<Piece>& layout, std::int64_t size,
                                              std::int64_t a_move, std::int64_t limit,
                                              CompactionScratch& scratch) {
  constexpr std::size_t kTries = 64;
  index_holes(layout, scratch);
  std::vector<MoveWindow>& windows = scratch.windows;
  find_windows(layout, size, a_move, limit, windows);
  const std::size_t tries = std::min(windows.size(), kTries);
  std::partial_sort(windows.begin(), windows.begin() + static_cast<std::ptrdiff_t>(tries),
                    windows.end(), [](const MoveWindow& a, const MoveWindow& b) {
                      return std::tie(a.cost, a.begin, a.end) < std::tie(b.cost, b.begin, b.end);
                    });
  for (std::size_t i = 0; i < tries; ++i) {
    if (auto plan = relocate_window(layout, windows[i].begin, windows[i].end, scratch)) {
      return plan;
    }
  }
  return std::nullopt;
}

// The layout after a plan, with free neighbors merged.
std::vector<Piece> after(const std::vector<Piece>& layout, const Compaction& plan) {
  std::map<BlockId, std::int64_t> moved;
  for (const Move& move : plan.moves) {
    moved[move.block] = move.to.count();
  }
  std::vector<Piece> taken;
  std::vector<std::int64_t> boundaries;
  std::int64_t end = 0;
  for (const Piece& piece : layout) {
    if (piece.starts_segment) {
      boundaries.push_back(piece.offset);
    }
    end = piece.offset + piece.size;
    if (!piece.free) {
      taken.push_back(piece);
      if (const auto found = moved.find(piece.block); found != moved.end()) {
        taken.back().offset = found->second;
      }
    }
  }
  std::sort(taken.begin(), taken.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  std::vector<Piece> result;
  const auto starts = [&](std::int64_t offset) {
    return std::binary_search(boundaries.begin(), boundaries.end(), offset);
  };
  const auto add_free = [&](std::int64_t from, std::int64_t to) {
    while (from < to) {
      const auto boundary = std::upper_bound(boundaries.begin(), boundaries.end(), from);
      const std::int64_t stop = boundary == boundaries.end() ? to : std::min(to, *boundary);
      result.push_back({.block = {},
                        .offset = from,
                        .size = stop - from,
                        .free = true,
                        .movable = false,
                        .starts_segment = starts(from)});
      from = stop;
    }
  };
  std::int64_t at = 0;
  for (Piece piece : taken) {
    add_free(at, piece.offset);
    piece.starts_segment = starts(piece.offset);
    result.push_back(piece);
    at = piece.offset + piece.size;
  }
  add_free(at, end);
  return result;
}

}  // namespace

Compaction slide_all(const std::vector<Piece>& layout) {
  Compaction plan;
  std::size_t begin = 0;
  const auto flush = [&](std::size_t end) {
    if (begin < end) {
      Compaction part = slide_window(layout, begin, end);
      plan.moves.insert(plan.moves.end(), part.moves.begin(), part.moves.end());
      plan.moved += part.moved;
    }
  };
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const bool clearable = layout[i].free || layout[i].movable;
    if (layout[i].starts_segment || !clearable) {
      flush(i);
      begin = clearable ? i : i + 1;
    }
  }
  flush(layout.size());
  return plan;
}

std::optional<Compaction> cheapest_window(const std::vector<Piece>& layout, std::int64_t size,
                                          std::int64_t a_move, std::int64_t limit,
                                          CompactionScratch& scratch) {
  std::optional<Compaction> slide = cheapest_slide(layout, size, a_move);
  if (slide && cost_of(*slide, a_move) > limit) {
    slide.reset();
  }
  auto relocation = cheapest_relocation(layout, size, a_move,
                                        slide ? cost_of(*slide, a_move) - 1 : limit, scratch);
  return relocation ? std::move(relocation) : std::move(slide);
}

std::optional<Compaction> slide_and_relocate(const std::vector<Piece>& layout, std::int64_t size,
                                             std::int64_t a_move, std::int64_t limit,
                                             CompactionScratch& scratch) {
  Compaction slide = slide_all(layout);
  const std::int64_t left = limit - cost_of(slide, a_move);
  if (left < 0) {
    return std::nullopt;
  }
  const auto relocation = cheapest_relocation(after(layout, slide), size, a_move, left, scratch);
  if (!relocation) {
    return std::nullopt;
  }
  slide.moves.insert(slide.moves.end(), relocation->moves.begin(), relocation->moves.end());
  slide.moved += relocation->moved;
  return slide;
}

}  // namespace recoup::detail
