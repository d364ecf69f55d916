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

// For a program that captures a CUDA graph within a budget, without recoup's knowledge.
inline std::string no_capture_in_budget(const std::string& device) {
  return "recoup: a CUDA graph is being captured inside a budget on " + device +
         "; its kernels would use addresses of tensors that may move. Capture it with "
         "torch.cuda.graph, or before or after the scope";
}

// For a program that fills a memory pool within a budget.
inline std::string no_pool_in_budget(const std::string& device) {
  return "recoup: a memory pool (of a CUDA graph, or a torch.cuda.MemPool) is being filled inside "
         "a budget on " +
         device + ", whose tensors may move. Fill it before or after the scope";
}

// For a program that requests a handle to share memory with another process.
inline std::string no_sharing_from_budget() {
  return "recoup: memory of a budget cannot be shared with other processes, because eviction "
         "reuses it. After the scope, share a copy made by tensor.clone()";
}

}  // namespace recoup::detail::cuda
