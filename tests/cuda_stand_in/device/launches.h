// The kernels that libraries register, and the number of launches of each.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace recoup::stand_in {

// Thread safe. A kernel is identified by the address of its host function.
class Launches {
 public:
  void add(const void* function, const char* mangled_name);
  // Counts a launch. Returns the kernel's name, which is valid as long as this object.
  [[nodiscard]] const char* count(const void* function);
  // Returns one line per launched kernel, the most frequent first: a count and the demangled name.
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
