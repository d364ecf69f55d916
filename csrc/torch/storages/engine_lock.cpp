#include "csrc/torch/storages/engine_lock.h"

#include <ATen/Parallel.h>

#include <utility>

#include "csrc/torch/compat/generators.h"

namespace recoup::detail {

// Note [The interpreter's lock]: it is released meanwhile, so no thread waits here while it holds
// the interpreter's lock. Hence that lock may be taken under the engine's lock: at the end of this
// wait, and when a storage is used whose only owner is its Python object.
void EngineMutex::wait() {
  RECOUP_CHECK(!is_mine(), "the engine's lock is taken by the thread that holds it");
  if (GeneratorLock::held_by_this_thread() || at::in_parallel_region()) {
    mutex_.lock();  // the interpreter's owner may wait for that generator
    return;
  }
  const WithoutInterpreter waiting;
  mutex_.lock();
}

// Destroying dead objects may need the GIL. A thread that holds a generator, or that a kernel with
// a generator waits for, must not wait for the GIL, so it leaves them to the next unlock.
// Note [The generator's gate]
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
