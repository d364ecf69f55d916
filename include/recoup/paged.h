// The use of paged memory by a scope.
#pragma once

#include "recoup/types.h"

namespace recoup {

// Since the first result of the scope that was paged; all counts are those of the process.
struct PagedUse {
  Bytes now{0};              // paged memory that is allocated now
  Bytes most{0};             // the most at any time
  Bytes read{0};             // from the disk
  Bytes written{0};          // to the disk
  Nanoseconds disk_time{0};  // time of these copies
};

}  // namespace recoup
