// Which threads are of a scope: those whose ops come to us.
#pragma once

#include "csrc/torch/compat/hook.h"

namespace recoup::detail {

inline bool on_scope_thread() { return Hook::on_scope_thread(); }
inline void set_scope_thread(bool on) { Hook::set_scope_thread(on); }

// Whether the thread runs a compiled graph as one op: see compiled_frame.h, which sets it.
inline bool& in_graph_flag() {
  thread_local bool in_graph = false;
  return in_graph;
}
inline bool in_graph() { return in_graph_flag(); }
inline void set_in_graph(bool on) { in_graph_flag() = on; }

// Whether the thread is in an op that came to us.
inline bool inside_op() { return Hook::inside() || in_graph(); }

// Ops of this thread do not come to us for as long as it lives.
class Unseen {
 public:
  Unseen() { Hook::set_inside(true); }
  ~Unseen() { Hook::set_state(was_); }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  const Hook::State was_ = Hook::state();
};

}  // namespace recoup::detail
