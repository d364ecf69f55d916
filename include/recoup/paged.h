// The use of paged memory by a scope.
#pragma once

#include "recoup/types.h"

namespace recoup {

// Since the first result of the scope that was paged; all counts are those of the process.
struct PagedUse {
  Bytes now{0};              // paged memory that is allocated now
  Bytes most{0};             // the most at any time
  std::int64_t reads = 0;    // blocks of 1 MiB that were read from the disk
  std::int64_t writes = 0;   // blocks of 1 MiB that were written to the disk
  Nanoseconds disk_time{0};  // time of these copies
};

}  // namespace recoup
