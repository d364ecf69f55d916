// Which bytes of its results an op has defined, for verify mode.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// A storage may be larger than the tensor in it (a loss is a number where the elements were), and a
// write through a view leaves the rest as it was. What no tensor of the op covers may be
// uninitialized, and then it differs from one run to the next.
class Coverage {
 public:
  // The op has defined this tensor, which is in the storage of its `result`-th result.
  void add(std::size_t result, const at::Tensor& tensor);
  // Of the bytes of the `result`-th result that were defined; `memory` is where its storage begins,
  // of `size` bytes.
  [[nodiscard]] std::uint64_t digest(const void* memory, Bytes size, std::size_t result) const;

 private:
  struct Region {
    std::size_t result = 0;
    std::int64_t begin = 0;  // bytes
    std::int64_t piece = 0;  // bytes in one piece
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;  // bytes
  };
  std::vector<Region> regions_;
};

}  // namespace recoup::detail
