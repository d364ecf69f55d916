#include "tests/cuda_stand_in/device/faults.h"

#include <execinfo.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace recoup::stand_in {
namespace {

constexpr char kLibrary[] = "librecoup_torch.so";
constexpr int kFrames = 40;          // the most stack frames that are examined
constexpr std::size_t kLongest = 5;  // the most frames of recoup in a call site

std::string from_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

Faults::Faults() {
  std::istringstream wishes(from_environment("CUDA_STAND_IN_FAIL"));
  for (std::string wish; std::getline(wishes, wish, ',');) {
    std::istringstream parts(wish);
    std::string function;
    std::int64_t call = 0;
    int code = 0;
    char colon = 0;
    std::getline(parts, function, ':');
    if (!(parts >> call >> colon >> code) || colon != ':') {
      std::fprintf(stderr, "CUDA stand-in: CUDA_STAND_IN_FAIL: not FUNCTION:CALL:CODE: %s\n",
                   wish.c_str());
      std::abort();
    }
    fail(function, call, code);
  }
}

void Faults::fail(const std::string& function, std::int64_t call, int code) {
  const std::lock_guard lock(mutex_);
  Counted& counted = functions_[function];
  counted.codes[counted.calls + call] = code;
}

void Faults::clear() {
  const std::lock_guard lock(mutex_);
  for (auto& [function, counted] : functions_) {
    counted.codes.clear();
  }
}

int Faults::count(const char* function) {
  const std::lock_guard lock(mutex_);
  auto found = functions_.find(function);
  if (found == functions_.end()) {
    found = functions_.emplace(function, Counted()).first;
  }
  Counted& counted = found->second;
  const auto code = counted.codes.extract(++counted.calls);
  return code.empty() ? 0 : code.mapped();
}

std::int64_t Faults::calls(const std::string& function) {
  const std::lock_guard lock(mutex_);
  const auto found = functions_.find(function);
  return found == functions_.end() ? 0 : found->second.calls;
}

std::string Faults::report() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [function, counted] : functions_) {
    text += std::to_string(counted.calls) + " " + function + "\n";
  }
  return text;
}

CallSites::CallSites()
    : file_(from_environment("CUDA_STAND_IN_SITES")),
      drop_(from_environment("CUDA_STAND_IN_DROP")) {}

bool CallSites::find_library() {
  if (begin_ == 0) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* found) {
          if (std::strstr(info->dlpi_name, kLibrary) == nullptr) {
            return 0;
          }
          auto* const self = static_cast<CallSites*>(found);
          self->begin_ = info->dlpi_addr;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            self->end_ = std::max(self->end_, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr +
                                                  info->dlpi_phdr[i].p_memsz);
          }
          return 1;
        },
        this);
  }
  return begin_ != 0;
}

bool CallSites::drops(const char* function) {
  if (file_.empty() && drop_.empty()) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (!find_library()) {
    return false;
  }
  std::array<void*, kFrames> frames{};
  const int depth = backtrace(frames.data(), kFrames);
  std::ostringstream offsets;
  std::size_t length = 0;
  for (int i = 0; i < depth && length < kLongest; ++i) {
    const auto at = reinterpret_cast<std::uintptr_t>(frames[static_cast<std::size_t>(i)]);
    if (at >= begin_ && at < end_) {
      offsets << " 0x" << std::hex << at - begin_;
      ++length;
    }
  }
  if (length == 0) {
    return false;
  }
  std::ostringstream key;
  key << std::hex << std::hash<std::string>()(function + offsets.str());
  const auto [site, fresh] = known_.emplace(key.str(), drop_.find(key.str()) != std::string::npos);
  if (fresh && !file_.empty()) {
    if (std::FILE* const file = std::fopen(file_.c_str(), "a"); file != nullptr) {
      std::fprintf(file, "%s %s%s\n", function, site->first.c_str(), offsets.str().c_str());
      std::fclose(file);
    }
  }
  dropped_ += site->second ? 1 : 0;
  return site->second;
}

std::int64_t CallSites::dropped() {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace recoup::stand_in
