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

}  // namespace recoup::detail::cuda
