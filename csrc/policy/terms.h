// The terms of the scores, in double: bytes times nanoseconds exceeds 2^64 for 1 GB that was idle
// for 18.4 s, which overflows in DTR's prototype.
#pragma once

#include <algorithm>

#include "recoup/policy.h"

namespace recoup::detail {

// In double, because sums of 64-bit nanoseconds could overflow.
inline double nanoseconds(Nanoseconds time) { return static_cast<double>(time.count()); }

// m(t): bytes that an eviction frees.
inline double bytes(const Candidate& candidate) {
  return static_cast<double>(candidate.size.count());
}

// s(t): nanoseconds since the last access, at least 1, so that no score divides by zero or is 0 /
// 0.
inline double staleness(const Candidate& candidate, Tick now) {
  return static_cast<double>(std::max<Tick>(now - candidate.last_access, 1));
}

// h(t) = c(t) / (m(t) * s(t)) (DTR, section 2). The variants differ in c.
inline double h_dtr(const Candidate& candidate, double cost, Tick now) {
  return cost / (bytes(candidate) * staleness(candidate, now));
}

}  // namespace recoup::detail
