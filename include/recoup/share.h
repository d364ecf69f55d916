// The parts of a budget that several processes of a machine share.
#pragma once

#include <sys/types.h>

#include "recoup/types.h"

namespace recoup {

// One process that shares a budget, as the others see it.
struct SharePart {
  pid_t process = 0;         // its process id
  bool is_own = false;       // whether it is the calling process
  Bytes part{0};             // the budget of its scope now
  Bytes workers{0};          // memory of its child processes, which is charged to the shared budget
  Bytes demand{0};           // the budget that its scope could use, as it has published
  Bytes needs{0};            // the bytes that an op waits for; 0: no op waits
  Nanoseconds wait_time{0};  // the time that the op has waited
};

// What this process has asked of the others so far.
struct ShareCounters {
  Bytes total{0};            // the budget that is shared
  Bytes most{0};             // largest part of this process
  std::int64_t waits = 0;    // the number of ops that waited for memory of other processes
  Nanoseconds wait_time{0};  // how long they waited
};

}  // namespace recoup
