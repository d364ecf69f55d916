// Kernels that are not ATen's own, while they run.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "csrc/torch/session.h"

namespace recoup::detail {

// Note [Guests]
// A custom op, in C++ or Python, may read and write tensors that no argument names: what it closes
// over, globals, members of objects. So it runs under the engine's eyes, as the program does: the
// ops inside name those tensors, and are charged, bring bytes back and make versions. What they
// make are leaves, because the kernel around them may change it by pointer.
//
// It may also hold raw pointers from one inner op to the next. So what the kernel was given, and
// whatever an op inside of it read or made, is neither moved nor evicted until the outermost guest
// of the thread has returned. The schema is believed where it says which arguments are written;
// another tensor whose address is taken for writing escapes (Note [Unseen writers]).
class GuestFrame {
 public:
  GuestFrame();
  ~GuestFrame();
  GuestFrame(const GuestFrame&) = delete;
  GuestFrame& operator=(const GuestFrame&) = delete;

  // The outermost one of this thread, or null.
  [[nodiscard]] static GuestFrame* current();

  // Until the end of the frame. `trusted`: taking its address says nothing, for it is an argument,
  // or was made in the frame.
  void hold(Session& session, StorageId storage, bool trusted, const Session::Lock& lock);
  [[nodiscard]] bool trusts(const Session& session, StorageId storage,
                            const Session::Lock& lock) const;

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // number of a session, birth of a storage
  struct Held {
    StorageId storage;
    bool trusted = false;
  };

  std::map<Key, Held> held_;
};

}  // namespace recoup::detail
