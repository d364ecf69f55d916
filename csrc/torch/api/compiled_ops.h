// Runs calls of compiled graphs as ops, for bindings: Note [Compiled graphs].
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/torch/ops/compiled_call.h"
#include "recoup/api.h"

namespace recoup {

enum class CompiledAs : std::uint8_t {
  kOp,      // its results can be evicted and restored by another run
  kOnce,    // not run again, so its results are non-recomputable
  kOpaque,  // it may read and write other tensors: its ops are received one by one
};

// Runs the call as an op of the budgets in force and returns its results. Throws as ops do.
RECOUP_API std::vector<at::Tensor> run_compiled(c10::intrusive_ptr<CompiledCall> call,
                                                const std::vector<at::Tensor>& read,
                                                const std::vector<at::Tensor>& written,
                                                CompiledAs as);
// Whether ops of this thread are received now.
RECOUP_API bool watching();
// Whether a kernel of the op "ns::name" may touch tensors that are not among its arguments, or keep
// tensors. True for ops that are not PyTorch's, that go on working after their return, or that do
// not exist.
RECOUP_API bool is_foreign_op(const std::string& name, bool on_gpu);
// Whether the storage of a tensor in `changed` overlaps that of another one in `changed` or of one
// in `others`.
RECOUP_API bool share_memory(const std::vector<at::Tensor>& changed,
                             const std::vector<at::Tensor>& others);
// Copies a tensor that a call changes, and copies it back: ops without autograd's metadata.
RECOUP_API at::Tensor copy_aside(const at::Tensor& tensor);
RECOUP_API void copy_back(const at::Tensor& tensor, const at::Tensor& from);

}  // namespace recoup
