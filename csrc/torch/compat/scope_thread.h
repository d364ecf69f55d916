// Which threads belong to a scope: recoup receives the ops of these.
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

// Whether the thread runs an op that recoup has received.
inline bool inside_op() { return Hook::inside() || in_graph(); }

// recoup receives no op of this thread during the object's lifetime.
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
