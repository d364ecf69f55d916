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
  kOp,      // what it makes is evicted, and comes back by another run
  kOnce,    // it is run once, so what it makes stays
  kOpaque,  // it calls what may read and write other tensors: its ops are seen one by one
};

// Runs the call under the eyes of the budgets in force; gives what it returns. Throws as ops do.
RECOUP_API std::vector<at::Tensor> run_compiled(c10::intrusive_ptr<CompiledCall> call,
                                                const std::vector<at::Tensor>& read,
                                                const std::vector<at::Tensor>& written,
                                                CompiledAs as);
// Whether ops of this thread are seen now.
RECOUP_API bool watching();
// Whether a kernel of the op "ns::name" may touch tensors that its arguments do not name, or keep
// them: it is no op of PyTorch's, or works beside its return. An op that there is not may.
RECOUP_API bool is_foreign_op(const std::string& name, bool on_gpu);
// Whether a storage of these lies in the memory of another's: of one of them, or of the others.
RECOUP_API bool share_memory(const std::vector<at::Tensor>& changed,
                             const std::vector<at::Tensor>& others);
// A copy, and the copying back, of what a call changes: ops without autograd's metadata.
RECOUP_API at::Tensor copy_aside(const at::Tensor& tensor);
RECOUP_API void copy_back(const at::Tensor& tensor, const at::Tensor& from);

}  // namespace recoup
