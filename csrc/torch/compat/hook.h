// How ops come to us, and which threads are of a scope.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace recoup::detail {

// Note [The hook]
// ~~~~~~~~~~~~~~~
// Ops are watched below autograd and what is in Python, and above all kernels. There are two ways
// to be there:
//
//   Fake           a boxed fallback on this dispatch key. The key is on for threads of a scope and
//   for
//                  no others, so that ops outside of scopes cost nothing.
//   BackendSelect  a boxed kernel for each op on this key, the next below, which is on always. An
//   op
//                  that is given no tensor has a kernel there, which chooses a backend; ours goes
//                  in front of it and calls it to proceed. (A fallback would not do: PyTorch has
//                  one.) Ops outside of scopes come to us too, and pass.
//
// The second is for processes in which Fake has another fallback: PyTorch means the key for a
// FakeTensor mode in C++. It is also for versions of PyTorch in which Fake is above Python. One of
// the two is chosen when recoup is loaded, for good.
//
// That a thread is of a scope has to follow autograd to its other threads, as sets of dispatch keys
// do: it is told by Fake, which is included; with the second hook by a key that means nothing to
// anybody, which is excluded.
class Hook {
 public:
  // Gets each op of the threads of scopes, but for those that run inside of another that it got;
  // with the keys that `proceed` takes.
  using Handler = void (*)(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                           torch::jit::Stack* stack);

  // Once, before anything is watched. By the environment's RECOUP_HOOK: fake, backend_select, or
  // nothing for the first of them that can be had. std::runtime_error says which cannot, and why;
  // then nothing has been registered.
  static void install(Handler handler);
  [[nodiscard]] static bool installed() { return handler_ != nullptr; }
  [[nodiscard]] static const char* name() { return on_fake_ ? "fake" : "backend_select"; }
  // Of ops that were registered since, too. Not under the dispatcher's lock.
  static void watch_new_ops();

  // Whether the thread is of a scope. Such a thread may replay: the one that entered a scope, those
  // that carry it, and those that autograd runs its backward on, which are others for each GPU.
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
  // Whether the thread is inside of an op that came to us, or of something else of ours. No op of
  // its comes to us then.
  [[nodiscard]] static bool inside() {
    return on_fake_ ? c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake)
                    : inside_flag();
  }
  // Note [Ops without Fake]
  // PyTorch excludes Fake too, where it reads nested sequences and storages into a new tensor
  // (internal_new_from_data: torch.tensor, Tensor.new, the constructors of sparse tensors). The ops
  // that read a tensor of the program's there have a kernel of ours on BackendSelect, which takes
  // them for ops of the program's if it is not recoup that excluded Fake.
  struct State {
    bool inside = false;  // no op comes to us
    bool ours = false;    // because of us
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
  // Whether PyTorch has excluded Fake, and the ops that read come to us on BackendSelect.
  [[nodiscard]] static bool without_fake() { return on_fake_ && inside() && !ours_flag(); }
  // Whether an op that has a kernel of ours on BackendSelect comes to us now. `may_make`: it may be
  // one that makes a tensor which PyTorch fills by pointer.
  [[nodiscard]] static bool comes_on_backend_select(bool may_make) {
    if (!on_scope_thread()) {
      return false;
    }
    return on_fake_ ? without_fake() : !inside() && !(may_make && fills_by_pointer());
  }
  // Whether a tensor that the thread makes is one that PyTorch fills by pointer (torch.tensor),
  // which it does without Fake. No op of ours makes it: it is taken for what it is when one first
  // meets it.
  [[nodiscard]] static bool fills_by_pointer() {
    return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Fake);
  }
  static void handle(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                     torch::jit::Stack* stack) {
    handler_(op, below, stack);
  }
  // Runs an op that came to us, or one that is replayed. `below`: the keys of its call without ours
  // and those above, as the op came with; its arguments are on the stack.
  static void proceed(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                      torch::jit::Stack* stack) {
    if ((!on_fake_ || without_fake()) && below.has(c10::DispatchKey::BackendSelect)) [[unlikely]] {
      proceed_past_ours(op, below, stack);
      return;
    }
    op.redispatchBoxed(below, stack);
  }

 private:
  // A test looks that nobody uses it. It is below Python, whose kernel excludes all above.
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
