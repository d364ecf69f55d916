#include "csrc/torch/compat/settings.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>

#include "csrc/base/check.h"
#include "csrc/base/fork_mutex.h"
#include "csrc/torch/compat/context_members.h"
#include "csrc/torch/compat/digest.h"
#include "csrc/torch/compat/float_control.h"

// Functions of OpenMP and of MKL; null if they are not linked. Note [Thread counts]
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int threads);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace recoup::detail {
namespace {

// Note [Thread counts]
// ~~~~~~~~~~~~~~~~~~~~
// Each thread has its own count, but at::set_num_threads also sets the initial count of later
// threads, and passes the count to MKL, which may have had none. Neither can be read back. So a
// replay changes only the counts of its own thread: that of OpenMP, and that of MKL, whose setter
// returns the former count.
int set_threads(int threads, int mkl_threads) {
  if (omp_set_num_threads == nullptr) {
    at::set_num_threads(threads);
    return 0;
  }
  omp_set_num_threads(threads);
  return MKL_Set_Num_Threads_Local == nullptr ? 0 : MKL_Set_Num_Threads_Local(mkl_threads);
}

// Where at::Context stores the settings. Note [Raw settings]
struct RawContext {
  std::byte* begin = nullptr;
  std::size_t size = 0;
  std::array<at::Float32Precision*, 16> precisions{};
  std::size_t count = 0;

  RawContext() {
    at::Context& context = at::globalContext();
    auto& first = context.*member_of(FirstSetting());
    auto& by_op = context.*member_of(Float32Precisions());
    begin = reinterpret_cast<std::byte*>(&first);
    size = static_cast<std::size_t>(reinterpret_cast<std::byte*>(&by_op) - begin);
    RECOUP_CHECK(by_op.size() <= precisions.size());
    for (auto& [op, precision] : by_op) {
      precisions[count++] = &precision;  // a stable address: the setter inserts and erases nothing
    }
  }
  static const RawContext& instance() {
    static const RawContext context;
    return context;
  }
};

}  // namespace

Settings::OfThread Settings::OfThread::now(c10::DeviceType device) {
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  return {.autocast_off =
              (c10::impl::tls_local_dispatch_key_set().excluded_ & c10::autocast_dispatch_keyset)
                  .raw_repr(),
          .float_control = detail::float_control(),
          .threads = at::get_num_threads(),
          .autocast_dtype = at::autocast::get_autocast_dtype(device),
          .device = device,
          .autocast_cache = at::autocast::is_autocast_cache_enabled(),
          .grad_mode = autograd.get_grad_mode(),
          .forward_grad_mode = autograd.get_fw_grad_mode(),
          .inference_mode = autograd.get_inference_mode()};
}

Settings::OfProcess Settings::OfProcess::now() {
  const RawContext& context = RawContext::instance();
  OfProcess process;
  RECOUP_CHECK(context.size <= process.context.size());
  std::memcpy(process.context.data(), context.begin, context.size);
  for (std::size_t i = 0; i < context.count; ++i) {
    process.precisions[i] = *context.precisions[i];
  }
  process.default_dtype = static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype());
  return process;
}

bool Settings::OfProcess::holds_now() const {
  const RawContext& now = RawContext::instance();
  bool same = default_dtype == static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype()) &&
              std::memcmp(context.data(), now.begin, now.size) == 0;
  for (std::size_t i = 0; i < now.count; ++i) {
    same &= precisions[i] == *now.precisions[i];
  }
  return same;
}

const Settings& Settings::current(c10::DeviceType device) {
  // Perf only: the last snapshots for the CPU and for GPUs.
  thread_local std::array<const Settings*, 2> last{};
  const Settings*& recent = last[device == c10::DeviceType::CPU ? 0 : 1];
  if (recent == nullptr || !recent->holds_now(device)) [[unlikely]] {
    recent = &intern(device);
  }
  return *recent;
}

const Settings& Settings::intern(c10::DeviceType device) {
  static_assert(std::has_unique_object_representations_v<Settings>);
  // Never destroyed: payloads outlive static destructors.
  static auto* const mutex = new ForkMutex;
  static auto* const known =
      new std::unordered_multimap<std::uint64_t, std::unique_ptr<const Settings>>;
  auto now = std::make_unique<Settings>();
  now->thread_ = OfThread::now(device);
  now->process_ = OfProcess::now();
  const std::uint64_t hash = digest(now.get(), sizeof *now);
  const std::lock_guard lock(*mutex);
  const auto [begin, end] = known->equal_range(hash);
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    return std::memcmp(entry.second.get(), now.get(), sizeof *now) == 0;
  });
  return found != end ? *found->second : *known->emplace(hash, std::move(now))->second;
}

bool SettingsGuard::differ_in_process(const Settings& one, const Settings& other) {
  return &one != &other &&
         std::memcmp(&one.process_, &other.process_, sizeof(Settings::OfProcess)) != 0;
}

SettingsGuard::SettingsGuard(const Settings& wanted, c10::DeviceType device)
    : wanted_(wanted),
      of_process_(differ_in_process(wanted, Settings::current(device))),
      before_(Settings::current(device)) {
  if (&before_ != &wanted_) {
    change(before_, wanted_);
  }
}

SettingsGuard::~SettingsGuard() {
  if (&before_ != &wanted_) {
    change(wanted_, before_);
  }
}

namespace {

template <class Element, std::size_t kSize>
void change_each(const std::array<Element, kSize>& from, const std::array<Element, kSize>& to,
                 std::size_t count, const auto& place) {
  for (std::size_t i = 0; i < count; ++i) {
    if (from[i] != to[i]) {
      place(i) = to[i];
    }
  }
}

}  // namespace

// Writes only what differs: another thread may be changing another setting.
void Settings::OfProcess::change(const OfProcess& from, const OfProcess& to) {
  const RawContext& raw = RawContext::instance();
  change_each(from.context, to.context, raw.size,
              [&](std::size_t i) -> std::byte& { return raw.begin[i]; });
  change_each(from.precisions, to.precisions, raw.count,
              [&](std::size_t i) -> at::Float32Precision& { return *raw.precisions[i]; });
  if (from.default_dtype != to.default_dtype) {
    c10::set_default_dtype(
        c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(to.default_dtype)));
  }
}

void Settings::restore_process() const {
  if (!process_.holds_now()) {
    const WithInterpreter of_process(true);
    OfProcess::change(OfProcess::now(), process_);
  }
}

void SettingsGuard::change(const Settings& from, const Settings& to) {
  Settings::OfProcess::change(from.process_, to.process_);
  const Settings::OfThread& old = from.thread_;
  const Settings::OfThread& now = to.thread_;
  if (old.threads != now.threads) {
    mkl_threads_ = set_threads(now.threads, &to == &before_ ? mkl_threads_ : now.threads);
  }
  if (old.float_control != now.float_control) {
    set_float_control(now.float_control);
  }
  c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  autograd.set_grad_mode(now.grad_mode);
  autograd.set_fw_grad_mode(now.forward_grad_mode);
  autograd.set_inference_mode(now.inference_mode);
  if (old.autocast_off != now.autocast_off) {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = (keys.excluded_ - c10::autocast_dispatch_keyset) |
                     c10::DispatchKeySet(c10::DispatchKeySet::RAW, now.autocast_off);
    c10::impl::_force_tls_local_dispatch_key_set(keys);
  }
  at::autocast::set_autocast_dtype(now.device, now.autocast_dtype);
  at::autocast::set_autocast_cache_enabled(now.autocast_cache);
}

OneThread::OneThread() : threads_(at::get_num_threads()), mkl_threads_(set_threads(1, 1)) {}

OneThread::~OneThread() { set_threads(threads_, mkl_threads_); }

}  // namespace recoup::detail
