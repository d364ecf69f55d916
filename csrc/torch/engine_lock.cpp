#include "csrc/torch/engine_lock.h"

#include <ATen/Parallel.h>

#include <utility>

#include "csrc/torch/generators.h"

namespace recoup::detail {

// What dies may need the GIL, for which nobody waits who holds a generator, or whom a kernel that
// holds one waits for: it is left to the next one. Note [The generator's gate]
void EngineMutex::unlock_and_bury() {
  Graveyard dead;
  if (!GeneratorLock::held_by_this_thread() && !at::in_parallel_region()) {
    std::swap(dead, graveyard_);
  }
  const bool notify = waiting_ > 0;
  unlock();
  if (notify) {
    changed_.notify_all();
  }
}

}  // namespace recoup::detail
