#include "csrc/torch/compat/hook.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup::detail {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// ---- Fake ----

void on_fake(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  Hook::handle(op, keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake), stack);
}

// Note [Ops without Fake]: the ops that read a tensor of the program where PyTorch has excluded
// Fake. A test looks for others.
constexpr std::pair<const char*, const char*> kReadWithoutFake[] = {
    {"aten::_local_scalar_dense", ""},
    {"aten::_to_copy", ""},
    {"aten::set_", "source_Storage"},
    {"aten::set_", "source_Storage_storage_offset"},
};

// ---- BackendSelect ----

// The op whose call bypasses recoup's kernel; null if there is none.
const c10::FunctionSchema*& passing() {
  thread_local const c10::FunctionSchema* schema = nullptr;
  return schema;
}

// recoup's kernel for an op. `original`: the op's former kernel on BackendSelect.
class Watcher final : public c10::OperatorKernel {
 public:
  explicit Watcher(std::optional<c10::SafeKernelFunction> original)
      : original_(std::move(original)) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
    constexpr DispatchKeySet kBelow(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect);
    if (!original_) {
      if (Hook::comes_on_backend_select(/*may_make=*/false)) {
        watch(op, keys & kBelow, stack);
      } else {
        op.redispatchBoxed(keys & kBelow, stack);
      }
      return;
    }
    const bool passes = std::exchange(passing(), nullptr) == &op.schema();
    if (!passes && Hook::comes_on_backend_select(/*may_make=*/true)) {
      watch(op, keys & kBelow.add(DispatchKey::BackendSelect), stack);
    } else {
      original_->callBoxed(op, keys, stack);
    }
  }

 private:
  static void watch(const c10::OperatorHandle& op, DispatchKeySet below, torch::jit::Stack* stack) {
    Hook::watch_new_ops();
    Hook::handle(op, below, stack);
  }

  const std::optional<c10::SafeKernelFunction> original_;
};

// Registers a kernel of recoup's in place of the op's kernel on BackendSelect, which it calls.
c10::RegistrationHandleRAII put_in_front(const c10::OperatorHandle& op) {
  std::optional<c10::SafeKernelFunction> original;
  if (op.hasKernelForDispatchKey(DispatchKey::BackendSelect)) {
    original.emplace(op.getComputedKernelForDispatchKey(DispatchKey::BackendSelect));
  }
  return c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), DispatchKey::BackendSelect,
      c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Watcher>(std::move(original))),
      std::nullopt, nullptr, "registered by recoup, to watch");
}

class SilentWarnings final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// recoup's kernels, and the ops that have none yet.
class Watchers {
 public:
  static Watchers& instance() {
    static auto* const made = new Watchers;  // never destroyed, like the kernels
    return *made;
  }

  // Called under the dispatcher's lock: nothing can be registered here.
  void add(const c10::OperatorName& op) {
    const std::lock_guard lock(mutex_);
    new_.push_back(op);
    any_new_.store(true, std::memory_order_release);
  }

  void register_new() {
    if (!any_new_.load(std::memory_order_acquire)) [[likely]] {
      return;
    }
    const std::lock_guard registering(registering_);
    std::vector<c10::OperatorName> ops;
    {
      const std::lock_guard lock(mutex_);
      ops.swap(new_);
      any_new_.store(false, std::memory_order_release);
    }
    SilentWarnings silent;  // "Overriding a previously registered kernel" is intended
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    for (const c10::OperatorName& name : ops) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (op && !kernels_.contains(name)) {
        kernels_.emplace(name, put_in_front(*op));
      }
    }
  }

 private:
  std::mutex registering_;  // held during registrations, so taken before the dispatcher's lock
  std::mutex mutex_;        // taken after the dispatcher's lock
  std::atomic<bool> any_new_ = false;
  std::vector<c10::OperatorName> new_;
  // Keyed by name: an op that is removed and registered again still has its kernel.
  std::unordered_map<c10::OperatorName, c10::RegistrationHandleRAII> kernels_;
};

// Never undone, like PyTorch's own registrations.
void watch_without_fake() {
  static auto* const kernels = new std::vector<c10::RegistrationHandleRAII>;
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const auto& [name, overload] : kReadWithoutFake) {
    kernels->push_back(
        put_in_front(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)));
  }
}

class Listener final : public c10::OpRegistrationListener {
  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    Watchers::instance().add(op.operator_name());
  }
  void onOperatorDeregistered(const c10::OperatorHandle& /*op*/) override {}
};

// Otherwise recoup would receive tensors that are subclasses in Python instead of the tensors that
// they consist of. True since PyTorch 2.13; BackendSelect is below both in every version.
constexpr bool kFakeIsBelowPython = DispatchKey::Fake < DispatchKey::Python;

}  // namespace

void Hook::proceed_past_ours(const c10::OperatorHandle& op, DispatchKeySet below,
                             torch::jit::Stack* stack) {
  passing() = &op.schema();
  op.redispatchBoxed(below, stack);
}

void Hook::watch_new_ops() {
  if (!on_fake_) {
    Watchers::instance().register_new();
  }
}

void Hook::install(Handler handler) {
  RECOUP_CHECK(handler_ == nullptr);
  const char* const set = std::getenv("RECOUP_HOOK");
  const std::string wanted = set == nullptr ? "" : set;
  if (!wanted.empty() && wanted != "fake" && wanted != "backend_select") {
    throw std::runtime_error(str_cat("RECOUP_HOOK must be fake or backend_select; got ", wanted));
  }
  const bool taken =
      c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(DispatchKey::Fake);
  if (taken && wanted == "fake") {
    throw std::runtime_error(
        "recoup cannot watch ops by dispatch key Fake (RECOUP_HOOK=fake): PyTorch or another "
        "library has a fallback on it. Set RECOUP_HOOK=backend_select, or unset RECOUP_HOOK");
  }
  on_fake_ = wanted.empty() ? !taken && kFakeIsBelowPython : wanted == "fake";
  if (on_fake_) {  // never undone, like PyTorch's own
    static auto* const library =
        new torch::Library(torch::Library::IMPL, "_", DispatchKey::Fake, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&on_fake>());
    watch_without_fake();
  } else {
    static auto* const listening = new c10::RegistrationHandleRAII(
        c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
    (void)listening;
    Watchers::instance().register_new();
  }
  handler_ = handler;
}

}  // namespace recoup::detail
