// HeldStorage: a storage of the program, and which value it holds.
#pragma once

#include <cstdint>

#include "csrc/base/slab.h"
#include "recoup/types.h"

namespace recoup::detail {

struct HeldStorage {
  ValueId current;
  void* handle = nullptr;
  std::int32_t user_pins = 0;  // part of its current value's hard pins
  std::uint64_t birth = 0;     // tells it from an earlier one with the same id
  BlockId before_write{};      // Note [Copy on write]: while an op writes it
  NameId name{};
  bool immovable = false;  // pinned or escaped: its block stays where it is
  bool left = false;       // Note [Leaving the pool]: it has
  bool placed = false;     // was moved to the low end, as a non-recomputable value that is written
                           // again and again
};

using HeldStorages = Slab<HeldStorage, StorageId>;

}  // namespace recoup::detail
