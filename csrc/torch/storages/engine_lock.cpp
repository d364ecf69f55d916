#include "csrc/torch/storages/engine_lock.h"

#include <ATen/Parallel.h>

#include <utility>

#include "csrc/torch/compat/generators.h"

namespace recoup::detail {

// Note [The interpreter's lock]: it is given up meanwhile, so no thread waits here with it. Then it
// may be taken under the engine's lock, as it is here when the wait ends, and when a storage is
// used whose only owner is its Python object.
void EngineMutex::wait() {
  RECOUP_CHECK(!is_mine(), "the engine's lock is taken by the thread that holds it");
  if (GeneratorLock::held_by_this_thread() || at::in_parallel_region()) {
    mutex_.lock();  // who has the interpreter's lock may wait for that generator
    return;
  }
  const WithoutInterpreter waiting;
  mutex_.lock();
}

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
