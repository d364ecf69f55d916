// A copy within device memory whose ranges may overlap: what the engine's moves are on a GPU.
#pragma once

#include "csrc/cuda/runtime.h"

namespace recoup::detail::cuda {

// Memory of one device that the parts of an overlapping copy go through.
struct Bounce {
  void* memory = nullptr;
  Bytes size;  // > 0
};

// Note [Overlapping copies]
// Copies in the order of a stream, none of which overlaps itself:
//
//   from        |aaaaaaaaaaaaaaaa|       distance d: parts of d bytes, each lands where the one
//   to     |aaaaaaaaaaaaaaaa|            before it was read; from the other end when moving up
//           <-d->
//
// When d is so small that there would be more parts than through the bounce, each part goes there
// first: twice the bytes, but few copies.
void move(Runtime& runtime, Stream stream, void* to, const void* from, Bytes size,
          const Bounce& bounce);

}  // namespace recoup::detail::cuda
