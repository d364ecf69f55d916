// Future: what is known about later ops in a simulation, but not in a live run.
#pragma once

#include "recoup/types.h"

namespace recoup::detail {

class Future {
 public:
  virtual ~Future() = default;
  // Plain cost of the program's ops until the next use of a live storage's content;
  // Candidate::kNever if there is none.
  [[nodiscard]] virtual Nanoseconds until_use(StorageId storage) const = 0;
  // See Candidate::priority.
  [[nodiscard]] virtual std::int8_t priority(ValueId /*value*/) const { return 0; }
};

}  // namespace recoup::detail
