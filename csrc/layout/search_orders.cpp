#include "csrc/layout/search_orders.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

namespace recoup::detail {
namespace {

constexpr double kNoise = 0.03;  // fraction of the length of an order
// the most sections on each side of a failure that are redrawn
constexpr std::int32_t kMostAround = 10;
// average number of runs after which the whole order is redrawn
constexpr std::int32_t kFreshEvery = 100;
// A change is kept if the search then places as many items as before, less a random number below
// this.
constexpr std::int32_t kSlack = 6;
// ratio of nodes for drawn orders to nodes for plain orders
constexpr std::int64_t kDrawnShare = 5;

// The Luby sequence: 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... (Luby, Sinclair and Zuckerman, 1993).
std::int64_t luby(std::int64_t i) {
  std::int64_t length = 1;
  while (length < i + 1) {
    length = 2 * length + 1;
  }
  while (length != i + 1) {
    length /= 2;
    i %= length;
    while (length / 2 >= i + 1) {
      length /= 2;
    }
  }
  return (length + 1) / 2;
}

// For each item, the most units that are live at one moment of its life.
std::vector<Units> totals(const LayoutInput& input) {
  std::vector<Units> live(static_cast<std::size_t>(input.sections) + 1);
  for (const LayoutItem& item : input.items) {
    live[static_cast<std::size_t>(item.lower)] += item.size;
    live[static_cast<std::size_t>(item.upper)] -= item.size;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  // most[k][s]: the maximum over the 2^k sections from s on.
  std::vector<std::vector<Units>> most = {live};
  for (std::size_t half = 1; 2 * half <= live.size(); half *= 2) {
    const std::vector<Units>& halves = most.back();
    std::vector<Units> whole(live.size() - 2 * half + 1);
    for (std::size_t s = 0; s < whole.size(); ++s) {
      whole[s] = std::max(halves[s], halves[s + half]);
    }
    most.push_back(std::move(whole));
  }
  std::vector<Units> result;
  for (const LayoutItem& item : input.items) {
    const auto width = static_cast<std::size_t>(item.width());
    const auto level = static_cast<std::size_t>(std::bit_width(width) - 1);
    const auto last = static_cast<std::size_t>(item.upper) - (std::size_t{1} << level);
    result.push_back(
        std::max(most[level][static_cast<std::size_t>(item.lower)], most[level][last]));
  }
  return result;
}

template <class Key>
std::vector<std::uint32_t> descending(std::size_t count, Key key) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return key(a) > key(b); });
  return order;
}

}  // namespace

SearchOrders::SearchOrders(const LayoutInput& input, std::uint64_t seed)
    : items_(input.items), sections_(input.sections), key_(items_.size()), random_(seed) {
  const std::vector<Units> total = totals(input);
  const auto width = [&](std::uint32_t i) { return items_[i].width(); };
  const auto area = [&](std::uint32_t i) {
    return static_cast<double>(items_[i].size) * items_[i].width();
  };
  const std::size_t count = items_.size();
  plain_ = {
      descending(count, [&](auto i) { return std::tuple(total[i], width(i), area(i)); }),
      descending(count, width),
      descending(count, [&](auto i) { return std::tuple(total[i], area(i)); }),
      descending(count, area),
      descending(count, [&](auto i) { return items_[i].size; }),
      descending(count, [&](auto i) { return total[i]; }),
  };
  for (std::size_t which = 0; which < kPlain; ++which) {
    place_[which].resize(count);
    for (std::size_t rank = 0; rank < count; ++rank) {
      place_[which][plain_[which][rank]] = static_cast<double>(rank) / static_cast<double>(count);
    }
  }
}

SearchOrders::Run SearchOrders::next(const Progress& last) {
  if (drawn_) {
    judge(last);
  }
  drawn_ = next_plain_ == 0 && drawn_lengths_ < kDrawnShare * plain_lengths_;
  if (drawn_) {
    draw();
    const std::int64_t length = luby(draws_++);
    drawn_lengths_ += length;
    return {.order = order_, .length = length};
  }
  const Run run = {.order = plain_[next_plain_], .length = plain_length_};
  plain_lengths_ += plain_length_;
  if (++next_plain_ == kPlain) {
    next_plain_ = 0;
    plain_length_ *= 2;
  }
  return run;
}

// Keeps the last drawn order, or returns to the previous one.
void SearchOrders::judge(const Progress& last) {
  if (!kept_ || last.most_placed >= kept_->progress.most_placed - below(kSlack)) {
    kept_ = {.key = key_, .progress = last};
  } else {
    key_ = kept_->key;
  }
}

void SearchOrders::draw() {
  if (!kept_ || below(kFreshEvery) == 0) {
    redraw(0, sections_);
    kept_.reset();
  } else {
    const std::int32_t center = pick(kept_->progress.fails);
    const std::int32_t around = 1 + below(kMostAround);
    redraw(center - around, center + around + 1);
  }
  order_.resize(items_.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return key_[a] < key_[b]; });
}

// Moves the items that live in sections [lower, upper) to their positions in one of the plain
// orders, with some noise.
void SearchOrders::redraw(std::int32_t lower, std::int32_t upper) {
  const std::vector<double>& place = place_[static_cast<std::size_t>(below(kPlain))];
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].lower < upper && lower < items_[i].upper) {
      const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
      key_[i] = place[i] + kNoise * (unit - 0.5);
    }
  }
}

// Returns a random index into `weights`, with probabilities in proportion to the weights.
std::int32_t SearchOrders::pick(std::span<const std::int64_t> weights) {
  const std::int64_t sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  if (sum == 0) {
    return below(sections_);
  }
  auto left = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(sum));
  std::int32_t at = 0;
  while (left >= weights[static_cast<std::size_t>(at)]) {
    left -= weights[static_cast<std::size_t>(at++)];
  }
  return at;
}

// Not a distribution of the standard library: those give different numbers with another library.
std::int32_t SearchOrders::below(std::int32_t count) {
  return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(count));
}

}  // namespace recoup::detail
