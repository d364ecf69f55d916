// MoreMemory: memory by which a budget can grow, such as what other processes leave.
#pragma once

#include <string>

#include "recoup/types.h"

namespace recoup::detail {

class MoreMemory {
 public:
  virtual ~MoreMemory() = default;
  // The bytes by which the budget grows from now on: `wanted` or more, or all that is free; 0: none
  // is. Does not wait.
  [[nodiscard]] virtual Bytes take(Bytes wanted) = 0;
  // Waits until at least `least` bytes are free, by which the budget grows; 0: others cannot give
  // as much. Called only where an op would fail otherwise.
  [[nodiscard]] virtual Bytes wait_for(Bytes least) = 0;
  // The budget of all that share it.
  [[nodiscard]] virtual Bytes total() const = 0;
  // Why there is no more, for an error.
  [[nodiscard]] virtual std::string reason() const = 0;
};

}  // namespace recoup::detail
