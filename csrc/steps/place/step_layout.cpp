#include "csrc/steps/place/step_layout.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "csrc/layout/greedy.h"
#include "csrc/layout/search_orders.h"
#include "csrc/layout/tree_search.h"

namespace recoup::detail {
namespace {

// Blocks that stay keep their places if the largest range without one has this share of the bytes
// that they leave.
constexpr double kContiguous = 0.99;
constexpr Units kReserveShare = 256;  // the reserve has one part in this of the range
constexpr Units kMostReserve = Units{1} << 18;
constexpr Units kSmallShare = 512;  // a small block has at most one part in this of the range
// With more items the frames and the neighbor lists of TreeSearch take too much memory.
constexpr std::size_t kMostItems = 6000;
// Number of infeasible parts that a search remembers: 512 KiB.
constexpr std::size_t kRemembered = std::size_t{1} << 15;
constexpr std::int64_t kLeastNodes = 500;  // per run of TreeSearch
constexpr std::uint64_t kSeed = 1033096058;

struct Range {
  Units begin = 0;
  Units end = 0;
  [[nodiscard]] Units size() const { return end - begin; }
};

// The ranges of [0, end) that are not taken, in order.
std::vector<Range> gaps(std::vector<Range> taken, Units end) {
  std::sort(taken.begin(), taken.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  taken.push_back({end, end});
  std::vector<Range> found;
  Units from = 0;
  for (const Range& each : taken) {
    if (std::min(each.begin, end) > from) {
      found.push_back({from, std::min(each.begin, end)});
    }
    from = std::max(from, each.end);
  }
  return found;
}

std::vector<Range>::iterator largest(std::vector<Range>& ranges) {
  return std::max_element(ranges.begin(), ranges.end(),
                          [](const Range& a, const Range& b) { return a.size() < b.size(); });
}

// A block in all runs of the step: its life, and the one that it replaces, if it survives the step.
// In sections from the cut on; `upper` may be beyond the last section.
struct Item {
  std::int32_t lower = 0;
  std::int32_t upper = 0;
  Units size = 0;
  std::uint32_t life = 0;
  std::uint32_t replaced = 0;  // 0: none
};

class StepLayout {
 public:
  // `joined`: whether each block that survives the step lies where its counterpart lay.
  StepLayout(const StepBlocks& blocks, bool joined, std::int64_t nodes,
             const std::function<void()>& check)
      : blocks_(blocks),
        joined_(joined),
        nodes_(nodes),
        check_(check),
        places_(blocks.lives.size()),
        done_(blocks.lives.size()) {}

  std::optional<std::vector<PlannedPlace>> find() {
    if (!place_staying()) {
      return std::nullopt;
    }
    place_alternating();
    make_items();
    stack_crossing();
    if (input_.bound > capacity() || !(place_greedily() || search())) {
      return std::nullopt;
    }
    return std::move(places_);
  }

 private:
  [[nodiscard]] bool stays(std::size_t life) const {
    return life < blocks_.before.size() && blocks_.lives[life].survives();
  }
  [[nodiscard]] Units size(std::size_t life) const { return blocks_.lives[life].size.count(); }
  [[nodiscard]] Units capacity() const { return range_.size(); }

  // Sets range_ and the offsets of blocks that live through every run.
  bool place_staying() {
    std::vector<Range> fixed;
    std::vector<Range> all;
    std::vector<std::size_t> movable;
    bool known = true;
    for (std::size_t i = 0; i < blocks_.before.size(); ++i) {
      if (!stays(i)) {
        continue;
      }
      const StepBlocks::Before& before = blocks_.before[i];
      known &= before.at.has_value();
      const Units at = before.at.value_or(Bytes(0)).count();
      set(i, at);
      all.push_back({at, at + size(i)});
      if (before.fixed && before.at) {
        fixed.push_back(all.back());
      } else {
        movable.push_back(i);
      }
    }
    std::vector<Range> left = gaps(std::move(all), blocks_.end.count());
    Units free = 0;
    for (const Range& each : left) {
      free += each.size();
    }
    const bool has_place =
        known && !left.empty() &&
        static_cast<double>(largest(left)->size()) >= kContiguous * static_cast<double>(free);
    if (has_place) {
      range_ = *largest(left);
    } else if (!pack(movable, gaps(std::move(fixed), blocks_.end.count()))) {
      return false;
    }
    const Units unit = blocks_.alignment.count();
    range_.begin += std::min(kMostReserve, capacity() / kReserveShare) / unit * unit;
    range_.end = range_.end / unit * unit;
    return true;
  }

  // Gives small blocks that alternate with their successors two places at the low end.
  void place_alternating() {
    const Units most = capacity() / kSmallShare;
    for (std::size_t i = 0; i < blocks_.before.size(); ++i) {
      if (alternates(blocks_, i) && size(i) <= most) {
        const PlannedPlace both{.at = PoolOffset(range_.begin),
                                .other = PoolOffset(range_.begin + size(i))};
        range_.begin += 2 * size(i);
        for (const std::size_t life : {i, std::size_t{blocks_.before[i].successor}}) {
          places_[life] = both;
          done_[life] = true;
        }
      }
    }
  }

  // Places the blocks outside the largest range where they fit, and the rest at its low end.
  bool pack(std::vector<std::size_t> lives, std::vector<Range> free) {
    if (free.empty()) {
      return false;
    }
    std::stable_sort(lives.begin(), lives.end(),
                     [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
    const auto main = largest(free);
    for (const std::size_t life : lives) {
      auto to = std::find_if(free.begin(), free.end(), [&](const Range& each) {
        return &each != &*main && each.size() >= size(life);
      });
      to = to == free.end() ? main : to;
      set(life, to->begin);
      to->begin += size(life);
    }
    range_ = *main;
    return range_.size() > 0;
  }

  void make_items() {
    const std::int32_t sections = blocks_.sections;
    std::vector<std::uint32_t> replaced(blocks_.lives.size());
    for (std::size_t i = 0; i < blocks_.before.size(); ++i) {
      if (const std::uint32_t next = blocks_.before[i].successor;
          joined_ && next != 0 && !alternates(blocks_, i)) {
        replaced[next] = static_cast<std::uint32_t>(i) + 1;
      }
    }
    std::vector<bool> joined(blocks_.before.size());
    std::vector<Item> items;
    std::vector<Units> crossing(
        static_cast<std::size_t>(sections));  // by section before which it cuts
    const auto add = [&](const Item& item) {
      items.push_back(item);
      for (std::int32_t s = item.lower + 1; s < item.upper; ++s) {
        crossing[static_cast<std::size_t>(s % sections)] += item.size;
      }
    };
    for (std::size_t i = blocks_.lives.size(); i-- > 0;) {
      const BlockLog::Life& life = blocks_.lives[i];
      if (stays(i) || done_[i] || (i < joined.size() && joined[i])) {
        continue;
      }
      Item item{.lower = life.lower,
                .upper = life.survives() ? sections : life.upper,
                .size = size(i),
                .life = static_cast<std::uint32_t>(i),
                .replaced = replaced[i]};
      if (replaced[i] != 0) {
        item.upper += blocks_.lives[replaced[i] - 1].upper;
        joined[replaced[i] - 1] = true;
      }
      add(item);
    }
    const auto cut =
        joined_ ? static_cast<std::int32_t>(std::min_element(crossing.begin(), crossing.end()) -
                                            crossing.begin())
                : 0;
    for (Item& item : items) {
      const std::int32_t width = item.upper - item.lower;
      item.lower = (item.lower + sections - cut) % sections;
      item.upper = item.lower + width;
      (item.upper > sections ? crossing_ : items_).push_back(item);
    }
    std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return std::tie(a.lower, a.life) < std::tie(b.lower, b.life);
    });
  }

  // Places the items that cross the cut, and makes the input of the search.
  void stack_crossing() {
    const std::int32_t sections = blocks_.sections;
    input_.sections = sections;
    input_.taken.resize(static_cast<std::size_t>(sections));
    std::sort(crossing_.begin(), crossing_.end(), [](const Item& a, const Item& b) {
      return std::tuple(-a.upper, a.lower, a.life) < std::tuple(-b.upper, b.lower, b.life);
    });
    Units depth = 0;
    for (const Item& item : crossing_) {
      depth += item.size;
      put(item, range_.end - depth);
      const auto take = [&](std::int32_t from, std::int32_t to) {
        std::fill(input_.taken.begin() + from, input_.taken.begin() + to, depth);
      };
      take(0, item.upper - sections);
      take(item.lower, sections);
    }
    std::vector<Units> level(static_cast<std::size_t>(sections) + 1);
    for (const Item& item : items_) {
      input_.items.push_back({.lower = item.lower, .upper = item.upper, .size = item.size});
      level[static_cast<std::size_t>(item.lower)] += item.size;
      level[static_cast<std::size_t>(item.upper)] -= item.size;
    }
    Units now = 0;
    for (std::size_t s = 0; s < input_.taken.size(); ++s) {
      now += level[s];
      input_.bound = std::max(input_.bound, now + input_.taken[s]);
    }
  }

  void set(std::size_t life, Units at) {
    places_[life] = {.at = PoolOffset(at), .other = PoolOffset(at)};
  }

  void put(const Item& item, Units at) {
    set(item.life, at);
    if (item.replaced != 0) {
      set(item.replaced - 1, at);
    }
  }

  void put_all(std::span<const Units> offsets) {
    for (std::size_t k = 0; k < items_.size(); ++k) {
      put(items_[k], range_.begin + offsets[k]);
    }
  }

  [[nodiscard]] bool fits(std::span<const Units> offsets) const {
    std::vector<Units> ends(input_.taken.size());
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const Units end = offsets[k] + items_[k].size;
      if (end > capacity()) {
        return false;
      }
      for (std::int32_t s = items_[k].lower; s < items_[k].upper; ++s) {
        Units& at = ends[static_cast<std::size_t>(s)];
        at = std::max(at, end);
      }
    }
    for (std::size_t s = 0; s < ends.size(); ++s) {
      if (ends[s] + input_.taken[s] > capacity()) {
        return false;
      }
    }
    return true;
  }

  bool place_greedily() {
    const auto try_order = [&](std::span<const std::uint32_t> order) {
      check_();
      const std::optional<LayoutPlacement> placed = place_in_order(input_, order, {});
      const bool found = fits(placed->offsets);
      if (found) {
        put_all(placed->offsets);
      }
      return found;
    };
    if (try_order(order_by_size(input_.items))) {
      return true;
    }
    const SearchOrders orders(input_, kSeed);
    for (std::size_t k = 0; k < SearchOrders::kPlain; ++k) {
      if (try_order(orders.plain(k))) {
        return true;
      }
    }
    return false;
  }

  bool search() {
    if (items_.size() > kMostItems) {
      return false;
    }
    TreeSearch tree(input_.items, input_.sections, input_.taken, kRemembered);
    SearchOrders orders(input_, kSeed);
    Progress progress;
    const std::int64_t short_run = std::max(kLeastNodes, 2 * std::ssize(items_));
    for (std::int64_t nodes = 0; nodes < nodes_; nodes += tree.nodes()) {
      check_();
      const SearchOrders::Run next = orders.next(progress);
      const auto outcome = tree.run(
          next.order, {.capacity = capacity(), .nodes = short_run * next.length, .deadline = {}});
      if (outcome == TreeSearch::Outcome::kFound) {
        put_all(tree.offsets());
        return true;
      }
      if (outcome == TreeSearch::Outcome::kInfeasible) {
        return false;
      }
      progress = {.most_placed = tree.most_placed(),
                  .fails = {tree.fails().begin(), tree.fails().end()}};
    }
    return false;
  }

  const StepBlocks& blocks_;
  const bool joined_;
  const std::int64_t nodes_;
  const std::function<void()>& check_;
  std::vector<PlannedPlace> places_;  // by life
  std::vector<bool> done_;            // by life: its place needs no item
  Range range_;                       // the range of the items
  std::vector<Item> items_;           // that do not cross the cut, in the order of the input
  std::vector<Item> crossing_;
  LayoutInput input_;
};

}  // namespace

bool alternates(const StepBlocks& blocks, std::size_t life) {
  const std::uint32_t next = blocks.before[life].successor;
  return next != 0 && blocks.lives[next].lower < blocks.lives[life].upper;
}

std::optional<std::vector<PlannedPlace>> lay_out(const StepBlocks& blocks, std::int64_t nodes,
                                                 const std::function<void()>& check) {
  std::optional<std::vector<PlannedPlace>> places =
      StepLayout(blocks, /*joined=*/true, nodes, check).find();
  return places ? std::move(places) : StepLayout(blocks, /*joined=*/false, nodes, check).find();
}

}  // namespace recoup::detail
