// How recoup receives ops, and which threads belong to a scope.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace recoup::detail {

// Note [The hook]
// ~~~~~~~~~~~~~~~
// Ops are watched below autograd and Python's keys, and above all kernels. There are two ways:
//
//   Fake           A boxed fallback on this dispatch key. The key is on for threads of scopes only,
//                  so ops outside of scopes cost nothing.
//   BackendSelect  A boxed kernel for each op on this key, the next below, which is always on.
//                  An op that is given no tensor has a kernel there, which chooses a backend.
//                  recoup's kernel replaces it and calls it to proceed. (A fallback is not
//                  possible: PyTorch has one.) Ops outside of scopes pass through recoup's
//                  kernels, too.
//
// The second is for processes in which Fake has another fallback: PyTorch reserves the key for a
// FakeTensor mode in C++. It is also for versions of PyTorch in which Fake is above Python. The
// choice is made when recoup is loaded and never changes.
//
// Scope membership of a thread has to follow autograd to its other threads, as sets of dispatch
// keys do. With the first hook it is encoded by including Fake, with the second by excluding a key
// that has no other use.
class Hook {
 public:
  // Receives each op of the scopes' threads, except ops that run inside another received op.
  // `below`: the keys to pass to `proceed`.
  using Handler = void (*)(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                           torch::jit::Stack* stack);

  // Call once, before any op is watched. The environment variable RECOUP_HOOK selects a hook: fake
  // or backend_select; unset: the first of them that is available. Throws std::runtime_error, with
  // the reason, if the hook is not available; then nothing has been registered.
  static void install(Handler handler);
  [[nodiscard]] static bool installed() { return handler_ != nullptr; }
  [[nodiscard]] static const char* name() { return on_fake_ ? "fake" : "backend_select"; }
  // Also watches the ops that were registered after install(). Not to be called under the
  // dispatcher's lock.
  static void watch_new_ops();

  // Whether the thread belongs to a scope. Such a thread may replay: the one that entered a scope,
  // those that carry it, and the threads on which autograd runs its backward (another one for each
  // GPU).
  [[nodiscard]] static bool on_scope_thread() {
    return on_fake_ ? c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake)
                    : c10::impl::tls_is_dispatch_key_excluded(kScope);
  }
  static void set_scope_thread(bool on) {
    if (on_fake_) {
      c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, on);
    } else {
      c10::impl::tls_set_dispatch_key_excluded(kScope, on);
    }
  }
  // Whether the thread runs a received op or other code of recoup's. No op of the thread is
  // received meanwhile.
  [[nodiscard]] static bool inside() {
    return on_fake_ ? c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake)
                    : inside_flag();
  }
  // Note [Ops without Fake]
  // PyTorch excludes Fake, too, where it reads nested sequences and storages into a new tensor
  // (internal_new_from_data: torch.tensor, Tensor.new, the constructors of sparse tensors). The ops
  // that read a tensor of the program there have a kernel of recoup's on BackendSelect. It treats
  // them as ops of the program unless recoup itself has excluded Fake.
  struct State {
    bool inside = false;  // no op is received
    bool ours = false;    // recoup, not PyTorch, has set `inside`
  };
  [[nodiscard]] static State state() { return {.inside = inside(), .ours = ours_flag()}; }
  static void set_state(State state) {
    ours_flag() = state.ours;
    if (on_fake_) {
      c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::Fake, state.inside);
    } else {
      inside_flag() = state.inside;
    }
  }
  static void set_inside(bool on) { set_state({.inside = on, .ours = on}); }
  // Whether PyTorch has excluded Fake, so that BackendSelect receives the ops that read.
  [[nodiscard]] static bool without_fake() { return on_fake_ && inside() && !ours_flag(); }
  // Whether an op with a kernel of recoup's on BackendSelect is received now. `may_make`: the op
  // may make a tensor that PyTorch fills by pointer.
  [[nodiscard]] static bool comes_on_backend_select(bool may_make) {
    if (!on_scope_thread()) {
      return false;
    }
    return on_fake_ ? without_fake() : !inside() && !(may_make && fills_by_pointer());
  }
  // Whether a tensor that the thread makes is one that PyTorch fills by pointer (torch.tensor),
  // which it does with Fake excluded. No received op makes such a tensor: it is registered when an
  // op first uses it.
  [[nodiscard]] static bool fills_by_pointer() {
    return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake);
  }
  static void handle(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                     torch::jit::Stack* stack) {
    handler_(op, below, stack);
  }
  // Runs a received or a replayed op. `below`: the keys of its call, without recoup's key and those
  // above, as passed to the handler. The op's arguments are on the stack.
  static void proceed(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                      torch::jit::Stack* stack) {
    if ((!on_fake_ || without_fake()) && below.has(c10::DispatchKey::BackendSelect)) [[unlikely]] {
      proceed_past_ours(op, below, stack);
      return;
    }
    op.redispatchBoxed(below, stack);
  }

 private:
  // A test checks that PyTorch does not use this key. It is below Python, whose kernel excludes all
  // keys above it.
  static constexpr c10::DispatchKey kScope = c10::DispatchKey::CustomRNGKeyId;

  static bool& ours_flag() {
    thread_local bool ours = false;
    return ours;
  }
  static bool& inside_flag() {
    thread_local bool inside = false;
    return inside;
  }
  static void proceed_past_ours(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                                torch::jit::Stack* stack);

  static inline Handler handler_ = nullptr;
  static inline bool on_fake_ = true;
};

}  // namespace recoup::detail
