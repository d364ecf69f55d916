#include "csrc/cuda/timing_sample.h"

namespace recoup::detail::cuda {

bool TimingSample::count(std::uint64_t kind) {
  Place& place = place_of(kind);
  if (place.kind != kind) {
    place = {.kind = kind};
  }
  const bool timed = place.ops < kFirst || place.ops % kEach == 0;
  ++place.ops;
  return timed;
}

}  // namespace recoup::detail::cuda
