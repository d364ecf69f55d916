// Kernels whose inner ops recoup sees, and which may hold raw pointers between those ops.
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
// A custom op, in C++ or Python, may read and write tensors that are not among its arguments: what
// it closes over, globals, members of objects. So recoup sees its inner ops like the program's:
// these name those tensors, and are charged, restore bytes and make versions. Their results are
// non-recomputable, because the surrounding kernel may change them by pointer.
//
// It may also hold raw pointers from one inner op to the next. So its arguments, and whatever an
// inner op read or made, are neither moved nor evicted until the opaque op has returned. The schema
// is trusted to say which arguments are written. Another tensor whose address is taken for writing
// escapes (Note [Unseen writers]).
//
// Composite kernels of ATen's that hold pointers have such a frame, too, with a smaller reach:
// Note [Pointer readers].
class KernelFrame {
 public:
  explicit KernelFrame(Pointers reach);
  ~KernelFrame();
  KernelFrame(const KernelFrame&) = delete;
  KernelFrame& operator=(const KernelFrame&) = delete;

  // Whether this thread is in a frame, and whether one of its frames is an opaque op's.
  [[nodiscard]] static bool any() { return innermost() != nullptr; }
  [[nodiscard]] static bool in_opaque();
  // Lets the frames of this thread hold a storage that an inner op uses, until they end. May
  // restore its bytes, so it may throw OutOfBudget. `trusted`: taking its address for writing is no
  // escape, because an opaque op was given it or made it.
  static void hold_in_all(Session& session, StorageId storage, bool integral, bool trusted,
                          const EngineLock& lock);
  // Holds all tensors of the session among the values.
  static void hold_all_in_all(Session& session, Arguments values, bool trusted,
                              const EngineLock& lock);
  [[nodiscard]] static bool trusts(const Session& session, StorageId storage,
                                   const EngineLock& lock);

  // Restores a plain tensor's bytes and holds them. Throws OutOfBudget.
  void hold(Session& session, const at::Tensor& tensor);
  // Restores and holds a storage, in this frame only.
  void hold(Session& session, StorageId storage, bool trusted, const EngineLock& lock);
  // The session's storages that this frame holds.
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
