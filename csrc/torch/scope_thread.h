// Which threads are of a scope: those whose ops come to us.
#pragma once

#include "csrc/torch/hook.h"

namespace recoup::detail {

inline bool on_scope_thread() { return Hook::on_scope_thread(); }
inline void set_scope_thread(bool on) { Hook::set_scope_thread(on); }

// Whether the thread is in an op that came to us.
inline bool inside_op() { return Hook::inside(); }

// Ops of this thread do not come to us for as long as it lives.
class Unseen {
 public:
  Unseen() { Hook::set_inside(true); }
  ~Unseen() { Hook::set_inside(was_); }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  const bool was_ = Hook::inside();
};

}  // namespace recoup::detail
