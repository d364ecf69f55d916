// Kernels under which the ops that they call are seen, and which may hold raw pointers meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "csrc/engine/state/values.h"
#include "csrc/torch/compat/pointer_readers.h"
#include "csrc/torch/storages/engine_lock.h"

namespace recoup::detail {

class Session;

// Note [Opaque ops]
// A custom op, in C++ or Python, may read and write tensors that no argument names: what it closes
// over, globals, members of objects. So it runs under the engine's eyes, as the program does: the
// ops inside name those tensors, and are charged, bring bytes back and make versions. What they
// make are leaves, because the kernel around them may change it by pointer.
//
// It may also hold raw pointers from one inner op to the next. So what the kernel was given, and
// whatever an op inside of it read or made, is neither moved nor evicted until the guest has
// returned. The schema is believed where it says which arguments are written; another tensor whose
// address is taken for writing escapes (Note [Unseen writers]).
//
// Composite kernels of ATen's that hold pointers have such a frame too, of another reach: Note
// [Pointer readers].
class KernelFrame {
 public:
  explicit KernelFrame(Pointers reach);
  ~KernelFrame();
  KernelFrame(const KernelFrame&) = delete;
  KernelFrame& operator=(const KernelFrame&) = delete;

  // Whether this thread is in a frame, and whether one of them is a guest's.
  [[nodiscard]] static bool any() { return innermost() != nullptr; }
  [[nodiscard]] static bool in_opaque();
  // Of an op that runs in this thread's frames: those that want it hold it until their end. May
  // bring it back, so it may throw OutOfBudget. `trusted`: taking its address for writing says
  // nothing, for it was made in a guest.
  static void hold_in_all(Session& session, StorageId storage, bool integral, bool trusted,
                          const EngineLock& lock);
  [[nodiscard]] static bool trusts(const Session& session, StorageId storage,
                                   const EngineLock& lock);

  // Brings a plain tensor's bytes back, and holds them. Throws OutOfBudget.
  void hold(Session& session, const at::Tensor& tensor);
  // As above, for this frame.
  void hold(Session& session, StorageId storage, bool trusted, const EngineLock& lock);
  // What it holds of the session.
  [[nodiscard]] std::vector<StorageId> held(const Session& session, const EngineLock& lock) const;

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // number of a session, birth of a storage
  struct Held {
    StorageId storage;
    bool trusted = false;
  };

  [[nodiscard]] static KernelFrame*& innermost() {
    thread_local KernelFrame* frame = nullptr;
    return frame;
  }
  [[nodiscard]] static Key key_of(const Session& session, StorageId storage,
                                  const EngineLock& lock);

  Pointers reach_;
  KernelFrame* outer_;
  std::map<Key, Held> held_;
};

}  // namespace recoup::detail
