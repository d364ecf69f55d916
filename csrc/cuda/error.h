// What CUDA says no to.
#pragma once

#include <stdexcept>
#include <string>

namespace recoup::detail::cuda {

// The world's failure, never the caller's or ours: a driver that is missing, too old or in trouble.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the program is told that captures a CUDA graph inside of a budget.
inline std::string no_capture_in_budget(const std::string& device) {
  return "recoup: a CUDA graph is captured inside of a budget on " + device +
         "; its kernels would use addresses from which tensors may move. Capture it before the "
         "scope or after it";
}

}  // namespace recoup::detail::cuda
