// CopyWait: waits for a copy that goes on beside ops.
#pragma once

#include "recoup/types.h"

namespace recoup::detail {

class CopyWait {
 public:
  virtual ~CopyWait() = default;
  // Of that value; if there is none, nothing happens.
  virtual void wait(ValueId id) = 0;
};

}  // namespace recoup::detail
