// Timer: adds its lifetime to one or two sums of nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

#include "recoup/types.h"

namespace recoup::detail {

class Timer {
 public:
  // The sums must outlive this object. `part`: a further sum, which grows by the same number.
  explicit Timer(std::int64_t& sum, std::int64_t* part = nullptr) : sum_(sum), part_(part) {}
  ~Timer() {
    const std::int64_t spent = Nanoseconds(std::chrono::steady_clock::now() - start_).count();
    sum_ += spent;
    if (part_ != nullptr) {
      *part_ += spent;
    }
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  std::int64_t& sum_;
  std::int64_t* const part_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace recoup::detail
