// OffsetMap: which block starts at an offset.
#pragma once

#include "csrc/base/flat_map.h"
#include "recoup/types.h"

namespace recoup::detail {

using OffsetMap = FlatMap<BlockId>;

}  // namespace recoup::detail
