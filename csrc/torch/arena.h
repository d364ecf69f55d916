// The memory of a pool: one range of addresses, reserved whole and touched only where it is used.
#pragma once

#include <memory>
#include <span>

#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

// An arena outlives its engine by as long as a storage lives in it: retire() hands it the blocks
// that are still in use, and the last of them to go takes the arena with it.
class Arena {
 public:
  // Reserves `size` bytes of addresses, huge pages advised (plain page faults cost 3-5 % of a
  // step). Throws std::bad_alloc when the system refuses.
  explicit Arena(Bytes size);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] void* at(PoolOffset offset) const { return base_ + offset.count(); }
  [[nodiscard]] bool contains(const void* pointer) const {
    return pointer >= base_ && pointer < base_ + size_.count();
  }
  [[nodiscard]] PoolOffset offset(const void* pointer) const {
    return Bytes(static_cast<const char*>(pointer) - base_);
  }

 private:
  char* base_ = nullptr;
  Bytes size_;
};

// Arenas without an engine. Thread safe.
// The engine is gone; `blocks` are still in use. Unused pages go back to the system.
void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks);
// A block of a retired arena is free. False when `pointer` is in none.
bool release_retired(const void* pointer);

}  // namespace recoup::detail
