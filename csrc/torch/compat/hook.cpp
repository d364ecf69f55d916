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

// Note [Ops without Fake]: those that read a tensor of the program's where PyTorch has excluded
// Fake. A test looks for others.
constexpr std::pair<const char*, const char*> kReadWithoutFake[] = {
    {"aten::_local_scalar_dense", ""},
    {"aten::_to_copy", ""},
    {"aten::set_", "source_Storage"},
    {"aten::set_", "source_Storage_storage_offset"},
};

// ---- BackendSelect ----

// The op whose call goes past our kernel to the one behind it.
const c10::FunctionSchema*& passing() {
  thread_local const c10::FunctionSchema* schema = nullptr;
  return schema;
}

// An op's kernel of ours. `behind`: the one that was there before.
class Watcher final : public c10::OperatorKernel {
 public:
  explicit Watcher(std::optional<c10::SafeKernelFunction> behind) : behind_(std::move(behind)) {}

  void operator()(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
    constexpr DispatchKeySet kBelow(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect);
    if (!behind_) {
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
      behind_->callBoxed(op, keys, stack);
    }
  }

 private:
  static void watch(const c10::OperatorHandle& op, DispatchKeySet below, torch::jit::Stack* stack) {
    Hook::watch_new_ops();
    Hook::handle(op, below, stack);
  }

  const std::optional<c10::SafeKernelFunction> behind_;
};

// A kernel of ours in front of what the op has on BackendSelect.
c10::RegistrationHandleRAII put_in_front(const c10::OperatorHandle& op) {
  std::optional<c10::SafeKernelFunction> behind;
  if (op.hasKernelForDispatchKey(DispatchKey::BackendSelect)) {
    behind.emplace(op.getComputedKernelForDispatchKey(DispatchKey::BackendSelect));
  }
  return c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), DispatchKey::BackendSelect,
      c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Watcher>(std::move(behind))),
      std::nullopt, nullptr, "registered by recoup, to watch");
}

class SilentWarnings final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// Our kernels, and the ops that have none yet.
class Watchers {
 public:
  static Watchers& instance() {
    static auto* const made = new Watchers;  // for good, as the kernels are
    return *made;
  }

  // Under the dispatcher's lock: nothing can be registered now.
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
    SilentWarnings silent;  // "Overriding a previously registered kernel": we do, and call it
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    for (const c10::OperatorName& name : ops) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (op && !kernels_.contains(name)) {
        kernels_.emplace(name, put_in_front(*op));
      }
    }
  }

 private:
  std::mutex registering_;  // held while kernels are registered, so before the dispatcher's
  std::mutex mutex_;        // the other way round
  std::atomic<bool> any_new_ = false;
  std::vector<c10::OperatorName> new_;
  // By names: an op that goes and comes again has its kernel still.
  std::unordered_map<c10::OperatorName, c10::RegistrationHandleRAII> kernels_;
};

// For good, as PyTorch's own are.
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

// Else tensors that are subclasses in Python would come to us, in place of the ones they consist
// of. PyTorch has had it so since 2.13; BackendSelect is below both in any case.
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
    throw std::runtime_error(str_cat("RECOUP_HOOK must be fake or backend_select, not ", wanted));
  }
  const bool taken =
      c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(DispatchKey::Fake);
  if (taken && wanted == "fake") {
    throw std::runtime_error(
        "recoup cannot watch ops by dispatch key Fake, as RECOUP_HOOK=fake wants it: PyTorch or "
        "another library has a fallback on it. Set RECOUP_HOOK=backend_select, or do not set it");
  }
  on_fake_ = wanted.empty() ? !taken && kFakeIsBelowPython : wanted == "fake";
  if (on_fake_) {  // for good, as PyTorch's own are
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
