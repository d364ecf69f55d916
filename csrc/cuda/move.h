// Copies within device memory whose ranges may overlap: moves of the engine on a GPU.
#pragma once

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Device memory through which the parts of an overlapping copy pass.
struct Bounce {
  void* memory = nullptr;
  Bytes size;  // > 0
};

// Note [Overlapping copies]
// An overlapping copy is divided into copies on one stream that do not overlap:
//
//   from        |aaaaaaaaaaaaaaaa|       distance d: parts of d bytes, each written where the
//   to     |aaaaaaaaaaaaaaaa|            previous one was read; from the other end if to > from
//           <-d->
//
// If d is so small that there would be more parts than through the bounce buffer, each part is
// first copied there: twice the bytes, but few copies.
void move(Runtime& runtime, Stream stream, void* to, const void* from, Bytes size,
          const Bounce& bounce);

}  // namespace recoup::detail::cuda
