// Measures by how much a call raises the memory of the process.
#pragma once

#include <fstream>
#include <string>

#include "recoup/types.h"

namespace recoup {

// A line of /proc/self/status, which is in kB.
inline Bytes status_line(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == name + ":") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return Bytes(kilobytes * 1024);
    }
  }
  return Bytes(0);
}

template <class Function>
Bytes memory_growth(Function&& function) {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const Bytes before = status_line("VmRSS");
  function();
  return status_line("VmHWM") - before;
}

}  // namespace recoup
