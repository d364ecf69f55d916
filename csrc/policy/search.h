// Selects the candidates that a plan scores: all, or a random sample of about 2 sqrt(N), without
// small values.
#pragma once

#include <span>
#include <vector>

#include "recoup/policy.h"

namespace recoup::detail {

// The least size that passes the small-value filter.
Bytes smallest_kept(const PolicyView& view);

class Search {
 public:
  explicit Search(const PolicyOptions& options)
      : small_filter_(options.small_filter), sampling_(options.sampling), rng_(options.seed) {}

  // The candidates to score, valid until the next call. Empty only if there is no candidate at all.
  std::span<const Candidate> shortlist(const PolicyView& view, SearchWork& work);

 private:
  // Goes once around the candidates with strides drawn from [1, max_stride], and lists those of at
  // least `smallest` bytes.
  void scan(const PolicyView& view, std::size_t max_stride, Bytes smallest, SearchWork& work);
  // Uniform in [0, limit).
  std::size_t below(std::size_t limit);

  bool small_filter_;
  bool sampling_;
  Rng rng_;
  std::vector<Candidate> shortlist_;
};

}  // namespace recoup::detail
