// The memory of a pool: one contiguous range of addresses.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "csrc/engine/base/footprint.h"
#include "csrc/pool/pool.h"
#include "recoup/types.h"

namespace recoup::detail {

// An arena outlives its engine while a storage lives in it: see RetiredArena.
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
  // Returns the memory of [from, to), which is unused, to the system as far as possible.
  virtual void discard(PoolOffset from, PoolOffset to) noexcept = 0;
  // Upper bound of the bytes that have physical memory.
  [[nodiscard]] virtual Bytes backed() const { return size_; }

 protected:
  Arena(void* base, Bytes size) : base_(static_cast<char*>(base)), size_(size) {}

 private:
  char* base_ = nullptr;
  Bytes size_;
};

// An arena in host memory: reserved as a whole, backed by memory where it is touched.
class HostArena final : public Arena {
 public:
  // Reserves `size` bytes of addresses and advises huge pages (plain page faults cost 3-5 % of a
  // step). Throws std::bad_alloc if the system refuses.
  explicit HostArena(Bytes size);
  ~HostArena() override;
  void discard(PoolOffset from, PoolOffset to) noexcept override;
  [[nodiscard]] static PageSizes page_sizes();
};

// An arena whose engine is gone, and its blocks that are still in use.
class RetiredArena {
 public:
  RetiredArena(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks);

  [[nodiscard]] bool contains(const void* pointer) const { return arena_->contains(pointer); }
  [[nodiscard]] bool empty() const { return blocks_.empty(); }
  [[nodiscard]] Bytes backed() const { return arena_->backed(); }
  [[nodiscard]] Bytes used() const { return used_; }
  // The addresses of the blocks, in order.
  [[nodiscard]] std::vector<const void*> in_use() const;
  // Frees a block. False if no block in use starts at `pointer`.
  bool release(const void* pointer);

 private:
  std::unique_ptr<Arena> arena_;
  std::map<PoolOffset, Bytes> blocks_;  // size by offset
  Bytes used_;
};

// Adds an arena on the CPU to the retired ones. Thread safe.
void retire(std::unique_ptr<Arena> arena, std::span<const BlockView> blocks);
// Frees a block of a retired arena. False if `pointer` is in none of them.
bool release_retired(const void* pointer);

}  // namespace recoup::detail
