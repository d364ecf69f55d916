// MovePrice: the estimated time to move a block within the pool.
#pragma once

#include <cstdint>

#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

struct MovePrice {
  Nanoseconds each{3000};  // to detach and attach a storage, and to update the metadata
  double a_byte = 0.1;     // nanoseconds per byte; unless measured, that of memmove on one core
  Nanoseconds a_look{20};  // to look at one block when moves are planned

  [[nodiscard]] Nanoseconds of(std::size_t moves, Bytes bytes) const {
    return each * static_cast<std::int64_t>(moves) +
           Nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes.count()) * a_byte));
  }
  [[nodiscard]] Nanoseconds look(std::size_t blocks) const {
    return a_look * static_cast<std::int64_t>(blocks);
  }
  // The number of bytes whose copy costs as much as the fixed part of a move.
  [[nodiscard]] Bytes each_in_bytes() const { return in_bytes(each); }
  [[nodiscard]] Bytes in_bytes(Nanoseconds price) const {
    return Bytes(static_cast<std::int64_t>(static_cast<double>(price.count()) / a_byte));
  }
};

}  // namespace recoup::detail
