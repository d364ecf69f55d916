// BlockKind: identifies a block such that the next run of the step has a block of the same kind.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "csrc/pool/pool.h"
#include "csrc/steps/track/step_log.h"

namespace recoup::detail {

// Fields are 0 if unknown.
struct BlockKind {
  std::int64_t size = 0;
  std::int64_t op = 0;  // number of the op that made its storage in the step, from 1
  std::int64_t slot = 0;
  std::int64_t storage = 0;  // number of a storage that no op of the step made, from 1
  friend auto operator<=>(const BlockKind&, const BlockKind&) = default;

  // Storages that an op made differ from step to step; other storages stay the same. `storage`: the
  // one whose content is in the block; invalid: none.
  [[nodiscard]] static BlockKind of(Bytes size, StorageId storage,
                                    const std::optional<Made>& maker) {
    BlockKind kind{.size = size.count()};
    if (maker) {
      kind.op = maker->op + std::int64_t{1};
      kind.slot = maker->slot;
    } else if (storage.valid()) {
      kind.storage = storage.index() + std::int64_t{1};
    }
    return kind;
  }
};

}  // namespace recoup::detail
