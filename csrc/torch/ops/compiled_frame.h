// A compiled graph that runs as one op: what its ops draw, and what becomes of its errors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <optional>
#include <string_view>

#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/ops/compiled_call.h"
#include "csrc/torch/ops/traits.h"

namespace recoup::detail {

// Note [Compiled graphs]
// A call of a graph that a compiler made is one op: its kernels write through pointers, so what it
// reads is pinned while it runs, what it allocates on its way is workspace, and what it makes comes
// back by running it again. Its ops come to nobody's notice but for two things.
//
// An op that draws random numbers does so behind its generator's gate, one by one, for the graph is
// in Python, which must not be waited for behind a gate. The states that they began with are on the
// call's tape; another run draws from the tape, and so does a first one that failed for want of
// room and is tried again.
//
// An op that may touch tensors that the graph was not given (a custom op, a collective) is refused
// here. Whoever runs a graph looks for these before, and runs it as a guest: Note [Opaque ops].

// While one lives, its graph runs on this thread.
class CompiledFrame {
 public:
  explicit CompiledFrame(CompiledCall& call);
  ~CompiledFrame();
  CompiledFrame(const CompiledFrame&) = delete;
  CompiledFrame& operator=(const CompiledFrame&) = delete;

  // The innermost of this thread; null: there is none.
  [[nodiscard]] static CompiledFrame* current() { return innermost(); }

  // Runs an op of the graph's.
  void pass(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack);
  // An allocation has found no room. Through the languages between here and there the error loses
  // its kind, so it is kept. rethrow_if throws it, if that is the error with this text.
  void note_failure(const PoolOutOfMemory& error) { failure_.emplace(error); }
  void rethrow_if(std::string_view what) const;

 private:
  [[nodiscard]] static CompiledFrame*& innermost() {
    thread_local CompiledFrame* frame = nullptr;
    return frame;
  }
  void draw(const c10::OperatorHandle& op, const OpTraits& traits, c10::DispatchKeySet below,
            torch::jit::Stack& stack);

  CompiledCall& call_;
  CompiledFrame* const outer_;
  const Hook::State was_inside_;
  std::optional<PoolOutOfMemory> failure_;
};

}  // namespace recoup::detail
