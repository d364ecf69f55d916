#include "csrc/policy/search.h"

#include <algorithm>
#include <cmath>

namespace recoup::detail {

// 1 % of the mean, rounded up: size * 100 < mean without the product, which could overflow.
Bytes smallest_kept(const PolicyView& view) {
  const Bytes mean = view.mean_candidate_size();
  return Bytes(mean.count() / 100 + (mean.count() % 100 == 0 ? 0 : 1));
}

std::span<const Candidate> Search::shortlist(const PolicyView& view, SearchWork& work) {
  const std::size_t count = view.candidate_count();
  const Bytes smallest = small_filter_ ? smallest_kept(view) : Bytes(0);
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  const std::size_t max_stride = sampling_ ? std::max<std::size_t>(root, 1) : 1;
  shortlist_.clear();
  scan(view, max_stride, smallest, work);
  // DTR's prototype removes small values from the set that it samples. Here a sample may consist of
  // small values only. Evicting those would free next to nothing, so look for larger ones.
  if (shortlist_.empty() && max_stride > 1) {
    scan(view, 1, smallest, work);
  }
  // Happens only if the mean is not exact: the largest candidate is never below the exact mean.
  if (shortlist_.empty()) {
    scan(view, 1, Bytes(0), work);
  }
  return shortlist_;
}

// Strides uniform in [1, sqrt(N)] visit about 2 sqrt(N) of N candidates (DTR, E.2, as in its
// prototype). The prototype always begins with entry 0. Here the start is also random and the scan
// wraps around, so that all candidates are equally likely to be visited.
void Search::scan(const PolicyView& view, std::size_t max_stride, Bytes smallest,
                  SearchWork& work) {
  const std::size_t count = view.candidate_count();
  const std::size_t start = max_stride > 1 ? below(count) : 0;
  for (std::size_t distance = 0; distance < count; distance += 1 + below(max_stride)) {
    const std::size_t index = start + distance;
    const Candidate candidate = view.candidate(index < count ? index : index - count);
    if (candidate.size < smallest) {
      ++work.filtered;
    } else {
      shortlist_.push_back(candidate);
    }
  }
}

// Not std::uniform_int_distribution, whose numbers depend on the standard library. The bias is
// limit / 2^64.
std::size_t Search::below(std::size_t limit) {
  if (limit == 1) {
    return 0;
  }
  using Wide = unsigned __int128;
  return static_cast<std::size_t>((static_cast<Wide>(rng_()) * limit) >> 64);
}

}  // namespace recoup::detail
