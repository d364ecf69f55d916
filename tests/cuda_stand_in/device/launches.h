// The kernels that libraries register, and how often each was launched.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace recoup::stand_in {

// Thread safe. Kernels are known by the address of their function on the host.
class Launches {
 public:
  void add(const void* function, const char* mangled_name);
  // Counts a launch; the kernel's name, which lives as long as this.
  [[nodiscard]] const char* count(const void* function);
  // Lines of a count and a name as in C++, the most frequent first.
  [[nodiscard]] std::string report();

 private:
  struct Kernel {
    std::string name;  // mangled
    std::int64_t launches = 0;
  };

  std::mutex mutex_;
  std::unordered_map<const void*, Kernel> kernels_;
};

}  // namespace recoup::stand_in
