#include "csrc/engine/base/footprint.h"

#include <algorithm>
#include <bit>

namespace recoup::detail {

template <class Function>
void Footprint::for_each_word(std::int64_t first, std::int64_t last, Function&& function) {
  for (std::int64_t page = first; page < last;) {
    const std::int64_t word = page / kWord;
    const std::int64_t end = std::min(last, (word + 1) * kWord);
    const std::int64_t count = end - page;
    const std::uint64_t ones = count == kWord ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    function(static_cast<std::size_t>(word), ones << (page % kWord));
    page = end;
  }
}

bool Footprint::start(Bytes capacity) {
  if (!counting_ && sizes_.page > Bytes(0)) {
    counting_ = true;
    mark(Bytes(0), capacity);
  }
  return counting_;
}

void Footprint::set(std::int64_t first, std::int64_t last) {
  if (const auto words = static_cast<std::size_t>((last + kWord - 1) / kWord);
      words > words_.size()) {
    words_.resize(std::max(words, 2 * words_.size()));
  }
  for_each_word(first, last, [this](std::size_t word, std::uint64_t mask) {
    touched_ += std::popcount(mask & ~words_[word]);
    words_[word] |= mask;
  });
}

bool Footprint::any(std::int64_t first, std::int64_t last) const {
  bool found = false;
  last = std::min(last, static_cast<std::int64_t>(words_.size()) * kWord);
  for_each_word(first, last,
                [&](std::size_t word, std::uint64_t mask) { found |= (words_[word] & mask) != 0; });
  return found;
}

void Footprint::mark(PoolOffset from, Bytes size) {
  if (size <= Bytes(0)) {
    return;
  }
  const std::int64_t page = sizes_.page.count();
  const std::int64_t first = from.count() / page;
  const std::int64_t last = (from.count() + size.count() - 1) / page + 1;
  const std::int64_t huge = sizes_.huge.count() / page;
  if (huge <= 1) {
    set(first, last);
    return;
  }
  // In a huge page that is in use already, the system commits small pages one by one.
  for (std::int64_t begin = first / huge * huge; begin < last; begin += huge) {
    if (any(begin, begin + huge)) {
      set(std::max(first, begin), std::min(last, begin + huge));
    } else {
      set(begin, begin + huge);
    }
  }
}

Footprint::Pages Footprint::pages_in(PoolOffset from, PoolOffset to) const {
  const std::int64_t page = sizes_.page.count();
  const std::int64_t first = (from.count() + page - 1) / page;
  const std::int64_t last = to.count() / page;
  return {.from = Bytes(page * first),
          .to = Bytes(page * std::max(first, last)),
          .touched = first < last && any(first, last)};
}

Footprint::Pages Footprint::middle(PoolOffset from, PoolOffset to, Bytes size) const {
  const std::int64_t unit = std::max(sizes_.page, sizes_.huge).count();
  const std::int64_t begin = (from.count() + to.count() - size.count()) / 2 / unit * unit;
  const std::int64_t end = (begin + size.count() + unit - 1) / unit * unit + unit;
  return pages_in(std::max(from, Bytes(begin)), std::min(to, Bytes(end)));
}

void Footprint::discard(const Pages& pages) {
  const std::int64_t page = sizes_.page.count();
  const std::int64_t end =
      std::min(pages.to.count() / page, static_cast<std::int64_t>(words_.size()) * kWord);
  for_each_word(pages.from.count() / page, end, [this](std::size_t word, std::uint64_t mask) {
    touched_ -= std::popcount(mask & words_[word]);
    words_[word] &= ~mask;
  });
}

bool Footprint::covers(PoolOffset from, Bytes size) const {
  const std::int64_t page = sizes_.page.count();
  const std::int64_t last = (from.count() + size.count() - 1) / page;
  if (last >= static_cast<std::int64_t>(words_.size()) * kWord) {
    return false;
  }
  for (std::int64_t at = from.count() / page; at <= last; ++at) {
    if (!get(at)) {
      return false;
    }
  }
  return true;
}

}  // namespace recoup::detail
