// Timer: adds its lifetime to a sum of nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

#include "recoup/types.h"

namespace recoup::detail {

class Timer {
 public:
  // `sum` must outlive this object.
  explicit Timer(std::int64_t& sum) : sum_(sum) {}
  ~Timer() { sum_ += Nanoseconds(std::chrono::steady_clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::int64_t& sum_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace recoup::detail
