#include "csrc/torch/session/evicted_access.h"

#include <c10/core/Storage.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>

#include "csrc/base/strings.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/imported_calls.h"
#include "csrc/torch/compat/interpreter.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/session/allocator.h"

namespace recoup::detail {
namespace {

// Whether the program was warned of an outside access in the last scope that began.
std::atomic<bool> warned{false};

bool share_memory(const c10::Storage& one, const c10::Storage& other) {
  return !is_evicted(*one.unsafeGetStorageImpl()) && !is_evicted(*other.unsafeGetStorageImpl()) &&
         c10::isSharedStorageAlias(one, other);
}

// Whether a function only returns a tensor's address to its caller.
bool is_accessor(std::string_view function) {
  constexpr std::array<std::string_view, 5> kClasses = {
      "c10::StorageImpl::", "c10::Storage::", "c10::TensorImpl::", "at::TensorBase::",
      "at::Tensor::"};
  return std::any_of(kClasses.begin(), kClasses.end(), [&](std::string_view each) {
    return function.find(each) != std::string_view::npos;
  });
}

std::string_view file_of(const char* path) {
  const std::string_view whole(path);
  return whole.substr(whole.rfind('/') + 1);
}

// Name of the innermost function that is no accessor, if its library has a symbol for it; otherwise
// the library's name.
std::string who_asked() {
  constexpr int kMost = 24;
  std::array<void*, kMost> frames{};
  const int count = backtrace(frames.data(), kMost);
  Dl_info own{};
  (void)dladdr(reinterpret_cast<const void*>(&answer_questions_outside_ops), &own);
  std::string_view library;
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    const void* const call = static_cast<const char*>(frames[static_cast<std::size_t>(i)]) - 1;
    if (dladdr(call, &info) == 0 || info.dli_fbase == own.dli_fbase) {
      continue;
    }
    const std::string_view file = file_of(info.dli_fname);
    if (!library.empty() && file != library) {
      break;
    }
    const std::string name = info.dli_sname == nullptr ? "" : c10::demangle(info.dli_sname);
    const std::string_view function = std::string_view(name).substr(0, name.find('('));
    if (is_accessor(function)) {
      continue;
    }
    if (!function.empty()) {
      return str_cat(function, " of ", file);
    }
    library = file;
  }
  return library.empty() ? "an unknown function" : str_cat("a function of ", library);
}

[[noreturn]] void refuse(const c10::StorageImpl* storage) {
  if (is_evicted(*storage)) {
    const std::string reason = const_cast<c10::StorageImpl*>(storage)
                                   ->get_extra_meta()
                                   .custom_data_ptr_error_msg_.value_or(evicted_message());
    if (reason == evicted_message()) {  // not of a scope that is suspended or has ended
      tell_of_outside_access();
    }
    TORCH_CHECK(false, reason, ". It was accessed by ", who_asked());
  }
  storage->throw_data_ptr_access_error();
}

}  // namespace

void tell_of_outside_access() {
  if (!on_scope_thread() && !warned.exchange(true)) {
    tell_program_of_outside_access();
  }
}

void answer_questions_outside_ops() {
  warned = false;
  const std::array<ImportedCall, 2> calls = {
      ImportedCall{"_ZN3c1020isSharedStorageAliasERKNS_7StorageES2_",
                   reinterpret_cast<void*>(&share_memory)},
      ImportedCall{"_ZNK3c1011StorageImpl27throw_data_ptr_access_errorEv",
                   reinterpret_cast<void*>(&refuse)}};
  redirect_imports(calls);
}

}  // namespace recoup::detail
