// A compiled graph that runs as one op: the random draws of its ops, and its errors.
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
// A call of a compiled graph is one op, since its kernels write through pointers. What it reads is
// pinned while it runs, what it allocates meanwhile is workspace, and its results are restored by
// running it again. recoup ignores the graph's ops, with two exceptions.
//
// An op that draws random numbers draws with its generator's gate held, each op by itself. The gate
// is not held for the whole graph: the graph is in Python, and a thread that holds a gate must not
// wait for Python. The generator states before each draw are on the call's tape. Another run draws
// from the tape, and so does a first run that failed for lack of room and is repeated.
//
// An op that may touch tensors that the graph was not given (a custom op, a collective) is refused
// here. The code that runs a graph checks for such ops before, and runs such a graph as an opaque
// op: Note [Opaque ops].

// During its lifetime, its graph runs on this thread.
class CompiledFrame {
 public:
  explicit CompiledFrame(CompiledCall& call);
  ~CompiledFrame();
  CompiledFrame(const CompiledFrame&) = delete;
  CompiledFrame& operator=(const CompiledFrame&) = delete;

  // The innermost frame of this thread; null if there is none.
  [[nodiscard]] static CompiledFrame* current() { return innermost(); }

  // Runs an op of the graph.
  void pass(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack* stack);
  // Stores the error of an allocation that found no room. The error loses its type in the languages
  // that it passes through. rethrow_if throws it if `what` contains its text.
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
