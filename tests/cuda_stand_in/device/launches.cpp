#include "tests/cuda_stand_in/device/launches.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace recoup::stand_in {
namespace {

std::string in_cpp(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : mangled;
}

}  // namespace

void Launches::add(const void* function, const char* mangled_name) {
  const std::lock_guard lock(mutex_);
  kernels_[function].name = mangled_name;
}

const char* Launches::count(const void* function) {
  const std::lock_guard lock(mutex_);
  Kernel& kernel = kernels_[function];
  ++kernel.launches;
  return kernel.name.empty() ? "a kernel" : kernel.name.c_str();
}

std::string Launches::report() {
  std::vector<std::pair<std::int64_t, std::string>> launched;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [function, kernel] : kernels_) {
      if (kernel.launches > 0) {
        launched.emplace_back(kernel.launches, in_cpp(kernel.name));
      }
    }
  }
  std::sort(launched.rbegin(), launched.rend());
  std::string text;
  for (const auto& [launches, name] : launched) {
    text += std::to_string(launches) + " " + name + "\n";
  }
  return text;
}

}  // namespace recoup::stand_in
