// OutsideSegment: memory of a device that another allocator has.
#pragma once

#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// Note [Segments]. A range of addresses whose memory an allocator returns to the driver when no
// allocation in it is left.
struct OutsideSegment {
  const void* base = nullptr;
  Bytes extent{0};                  // of the addresses
  Bytes size{0};                    // bytes of memory that it has from the driver
  std::vector<const void*> in_use;  // the addresses of its allocations, in order
};

}  // namespace recoup::detail
