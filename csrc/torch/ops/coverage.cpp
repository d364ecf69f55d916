#include "csrc/torch/ops/coverage.h"

#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/torch/compat/digest.h"

namespace recoup::detail {

void Coverage::add(std::size_t result, const at::Tensor& tensor) {
  const auto item = static_cast<std::int64_t>(tensor.dtype().itemsize());
  Region region{.result = result,
                .begin = tensor.storage_offset() * item,
                .piece = item,
                .sizes = {},
                .strides = {}};
  // Starts with the smallest stride: contiguous dimensions become one piece.
  std::vector<std::int64_t> order;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) == 0) {
      return;
    }
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0) {
      order.push_back(dim);
    }
  }
  std::sort(order.begin(), order.end(),
            [&](std::int64_t a, std::int64_t b) { return tensor.stride(a) < tensor.stride(b); });
  for (std::int64_t dim : order) {
    const std::int64_t stride = tensor.stride(dim) * item;
    if (region.sizes.empty() && stride == region.piece) {
      region.piece *= tensor.size(dim);
    } else {
      region.sizes.push_back(tensor.size(dim));
      region.strides.push_back(stride);
    }
  }
  regions_.push_back(std::move(region));
}

std::uint64_t Coverage::digest(const void* memory, Bytes size, std::size_t result) const {
  constexpr std::uint64_t kPrime = 0x100000001b3ULL;
  const auto* const bytes = static_cast<const unsigned char*>(memory);
  std::uint64_t hash = result;
  for (const Region& region : regions_) {
    if (region.result != result) {
      continue;
    }
    std::vector<std::int64_t> index(region.sizes.size(), 0);
    std::int64_t at = region.begin;
    for (std::size_t dim = 0;;) {
      RECOUP_CHECK(at >= 0 && at + region.piece <= size.count());
      hash = (hash ^ detail::digest(bytes + at, static_cast<std::size_t>(region.piece))) * kPrime;
      for (dim = 0; dim < index.size(); ++dim) {
        at += region.strides[dim];
        if (++index[dim] < region.sizes[dim]) {
          break;
        }
        at -= region.strides[dim] * region.sizes[dim];
        index[dim] = 0;
      }
      if (dim == index.size()) {
        break;
      }
    }
  }
  return hash;
}

}  // namespace recoup::detail
