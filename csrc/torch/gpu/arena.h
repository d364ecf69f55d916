// The memory of a pool: one range of addresses.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "csrc/engine/base/footprint.h"
#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

// An arena outlives its engine by as long as a storage lives in it: see RetiredArena.
class Arena {
 public:
  virtual ~Arena() = default;
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
  // Nobody uses [from, to): what memory can be given back is.
  virtual void discard(PoolOffset from, PoolOffset to) noexcept = 0;
  // Bytes with memory behind them, as far as that is known: at most so many.
  [[nodiscard]] virtual Bytes backed() const { return size_; }

 protected:
  Arena(void* base, Bytes size) : base_(static_cast<char*>(base)), size_(size) {}

 private:
  char* base_ = nullptr;
  Bytes size_;
};

// Of the CPU: reserved whole and touched only where it is used.
class HostArena final : public Arena {
 public:
  // Reserves `size` bytes of addresses, huge pages advised (plain page faults cost 3-5 % of a
  // step). Throws std::bad_alloc when the system refuses.
  explicit HostArena(Bytes size);
  ~HostArena() override;
  void discard(PoolOffset from, PoolOffset to) noexcept override;
  [[nodiscard]] static PageSizes page_sizes();
};

// An arena without an engine, and the blocks in it that are still in use.
class RetiredArena {
 public:
  RetiredArena(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks);

  [[nodiscard]] bool contains(const void* pointer) const { return arena_->contains(pointer); }
  [[nodiscard]] bool empty() const { return blocks_.empty(); }
  [[nodiscard]] Bytes backed() const { return arena_->backed(); }
  [[nodiscard]] Bytes used() const { return used_; }
  // False when `pointer` is no block in use.
  bool release(const void* pointer);

 private:
  std::unique_ptr<Arena> arena_;
  std::map<PoolOffset, Bytes> blocks_;  // size by offset
  Bytes used_;
};

// Retired arenas of the CPU. Thread safe.
void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks);
// A block of one of them is free. False when `pointer` is in none.
bool release_retired(const void* pointer);

}  // namespace recoup::detail
