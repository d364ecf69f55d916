// What a simulation knows and a live run does not.
#pragma once

#include "recoup/types.h"

namespace recoup::detail {

class Future {
 public:
  virtual ~Future() = default;
  // Plain cost of the program's ops until the content of a live storage is used next;
  // Candidate::kNever.
  [[nodiscard]] virtual Nanoseconds until_use(StorageId storage) const = 0;
  // As Candidate::priority.
  [[nodiscard]] virtual std::int8_t priority(ValueId /*value*/) const { return 0; }
};

}  // namespace recoup::detail
