// MovePrice: the estimated time to move a block within the pool.
#pragma once

#include <cstdint>

#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

struct MovePrice {
  Nanoseconds per_move{3000};         // to detach and attach a storage, and to update the metadata
  double ns_per_byte = 0.1;           // unless measured, that of memmove on one core
  Nanoseconds per_scanned_block{20};  // when moves are planned

  [[nodiscard]] Nanoseconds of(std::size_t moves, Bytes bytes) const {
    return per_move * static_cast<std::int64_t>(moves) +
           Nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes.count()) * ns_per_byte));
  }
  [[nodiscard]] Nanoseconds scan(std::size_t blocks) const {
    return per_scanned_block * static_cast<std::int64_t>(blocks);
  }
  // The number of bytes whose copy costs as much as the fixed part of a move.
  [[nodiscard]] Bytes move_in_bytes() const { return in_bytes(per_move); }
  [[nodiscard]] Bytes in_bytes(Nanoseconds price) const {
    return Bytes(static_cast<std::int64_t>(static_cast<double>(price.count()) / ns_per_byte));
  }
};

}  // namespace recoup::detail
