// Landing: waits for a copy that goes on beside ops.
#pragma once

#include "recoup/types.h"

namespace recoup::detail {

class Landing {
 public:
  virtual ~Landing() = default;
  // Of that value; if there is none, nothing happens.
  virtual void land(ValueId id) = 0;
};

}  // namespace recoup::detail
