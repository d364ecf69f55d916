// CudaError, and texts of errors on GPUs.
#pragma once

#include <stdexcept>
#include <string>

namespace recoup::detail::cuda {

// A failure outside of recoup and of its caller: a driver that is missing, too old or failing.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// For a program that captures a CUDA graph within a budget.
inline std::string no_capture_in_budget(const std::string& device) {
  return "recoup: a CUDA graph is captured inside of a budget on " + device +
         "; its kernels would use addresses from which tensors may move. Capture it before the "
         "scope or after it";
}

// For a program that fills a memory pool within a budget.
inline std::string no_pool_in_budget(const std::string& device) {
  return "recoup: a memory pool, of a CUDA graph or a torch.cuda.MemPool, is filled inside of a "
         "budget on " +
         device + ", whose tensors may move. Fill it before the scope or after it";
}

// For a program that requests a handle to share memory with another process.
inline std::string no_sharing_from_budget() {
  return "recoup: memory of a budget is not shared with other processes, for it is given away when "
         "it is evicted. Share a copy that is made after the scope (tensor.clone())";
}

}  // namespace recoup::detail::cuda
