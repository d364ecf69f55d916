// The bytes of its results that an op has defined, for Options::check_replays.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// A storage may be larger than the tensor in it (a loss is one number in a storage for all
// elements), and a write through a view leaves the rest as it was. Bytes that no tensor of the op
// covers may be uninitialized and so differ between runs.
class Coverage {
 public:
  // Notes that the op has defined this tensor, which is in the storage of its `result`-th result.
  void add(std::size_t result, const at::Tensor& tensor);
  // Digest of the defined bytes of the `result`-th result. `memory`: the beginning of its storage,
  // of `size` bytes.
  [[nodiscard]] std::uint64_t digest(const void* memory, Bytes size, std::size_t result) const;

 private:
  struct Region {
    std::size_t result = 0;
    std::int64_t begin = 0;  // offset in bytes
    std::int64_t piece = 0;  // bytes in one contiguous piece
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;  // in bytes
  };
  std::vector<Region> regions_;
};

}  // namespace recoup::detail
