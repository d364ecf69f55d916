// How far a call drives the memory of the process up.
#pragma once

#include <fstream>
#include <string>

#include "recoup/types.h"

namespace recoup {

// A line of /proc/self/status in kB.
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
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  const Bytes before = status_line("VmRSS");
  function();
  return status_line("VmHWM") - before;
}

}  // namespace recoup
