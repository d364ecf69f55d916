// HeldStorage: a live storage of the program and its current value.
#pragma once

#include <cstdint>

#include "csrc/base/slab.h"
#include "recoup/types.h"

namespace recoup::detail {

struct HeldStorage {
  ValueId current;
  void* handle = nullptr;
  std::int32_t user_pins = 0;  // the user's pins; included in the hard pins of its current value
  LineId address_line{};       // line of the program that took its address
  std::uint64_t birth = 0;     // distinguishes it from earlier storages with the same id
  BlockId before_write{};  // Note [Copy on write]: the old content while an op writes the storage
  NameId name{};
  std::int32_t shown = 0;   // number of objects of the program that show its bytes
  bool shown_only = false;  // it has escaped to these objects only: Note [Shown]
  bool immovable = false;   // pinned or escaped: its block must not move
  bool left = false;        // has left the pool: Note [Leaving the pool]
  bool placed = false;      // placing it at the pool's low end was tried: see Mover::place_low
  bool window = false;      // the charge for overflow memory, not a storage
};

using HeldStorages = Slab<HeldStorage, StorageId>;

}  // namespace recoup::detail
