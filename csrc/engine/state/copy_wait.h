// CopyWait: waits for an async copy to or from the spill tier.
#pragma once

#include "recoup/types.h"

namespace recoup::detail {

class CopyWait {
 public:
  virtual ~CopyWait() = default;
  // Waits for the copy of `id`. Does nothing if no copy of this value is under way.
  virtual void wait(ValueId id) = 0;
};

}  // namespace recoup::detail
