// Note [Addresses of the stand-in]
// The memory of all devices is in one range of addresses that the host cannot access: a host that
// reads a device pointer gets SIGSEGV, as on hardware. The bytes of address p are at p + kSpan,
// where only work on a stream accesses them. Unmapped memory is inaccessible there, too. New memory
// is filled with kPoison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace recoup::stand_in {

using Address = std::uintptr_t;

inline constexpr Address kFirst = 0x200000000000;  // 32 TiB: Linux maps nothing there by default
inline constexpr Address kSpan = 0x010000000000;   // size of the range of device addresses
inline constexpr std::size_t kGranularity = 2U << 20;
inline constexpr int kPoison = 0xFE;

[[nodiscard]] inline Address address_of(const void* memory) {
  return reinterpret_cast<Address>(memory);
}
[[nodiscard]] inline bool is_device(const void* memory) {
  return address_of(memory) >= kFirst && address_of(memory) < kFirst + kSpan;
}
// Returns where the bytes of a device address, or of a host address, are.
[[nodiscard]] inline char* bytes_of(const void* memory) {
  return reinterpret_cast<char*>(address_of(memory) + (is_device(memory) ? kSpan : 0));
}

enum class BlockKind { kDevice, kPinned, kRegistered, kReserved };

struct Block {
  Address begin = 0;
  std::size_t size = 0;
  int device = 0;
  BlockKind kind = BlockKind::kDevice;
};

struct Mapping {
  Address begin = 0;
  std::size_t size = 0;
  int device = 0;
  std::uint64_t handle = 0;  // 0: mapped by allocate()
};

enum class Outcome { kDone, kInvalid, kNoMemory };

// Thread safe.
class Memory {
 public:
  Memory(int devices, std::size_t limit, std::size_t pinned_limit);

  // ---- as cudaMalloc, cudaHostAlloc and cudaHostRegister do ----
  [[nodiscard]] void* allocate(int device, std::size_t size);  // null: not enough device memory
  Outcome release(void* memory);
  [[nodiscard]] void* pin(int device, std::size_t size);
  Outcome unpin(void* memory);
  Outcome add_registered(int device, void* memory, std::size_t size);
  Outcome remove_registered(void* memory);

  // ---- as the driver's functions of virtual memory do ----
  Outcome reserve(int device, std::size_t size, Address& at);
  Outcome unreserve(Address at, std::size_t size);
  Outcome create(int device, std::size_t size, std::uint64_t& handle);
  Outcome release_handle(std::uint64_t handle);
  Outcome map(Address at, std::size_t size, std::uint64_t handle);
  Outcome unmap(Address at, std::size_t size);
  Outcome retain(const void* memory, std::uint64_t& handle);
  [[nodiscard]] std::optional<int> device_of_handle(std::uint64_t handle);

  // ---- queries ----
  // Always true for host memory.
  [[nodiscard]] bool accessible(const void* memory, std::size_t size);
  [[nodiscard]] std::optional<Block> block_at(const void* memory);
  [[nodiscard]] std::optional<Mapping> mapping_at(const void* memory);
  [[nodiscard]] bool is_pinned(const void* memory);
  [[nodiscard]] std::size_t used(int device);
  [[nodiscard]] std::size_t pinned();
  [[nodiscard]] std::size_t limit() const { return limit_; }
  void set_pinned_limit(std::size_t limit);

 private:
  struct Handle {
    std::size_t size = 0;
    int device = 0;
    int users = 0;  // its creator and its mappings
  };

  // These require the lock.
  [[nodiscard]] Address find_addresses(std::size_t size) const;
  [[nodiscard]] bool back(const Mapping& mapping);
  void unback(Address at);
  void drop(std::uint64_t handle);
  [[nodiscard]] std::size_t& used_by(int device) {
    return used_.at(static_cast<std::size_t>(device));
  }
  [[nodiscard]] std::optional<Block> find_block(Address at) const;

  const std::size_t limit_;
  std::mutex mutex_;
  std::map<Address, Block> blocks_;      // by start address
  std::map<Address, Mapping> mappings_;  // by start address
  std::map<std::uint64_t, Handle> handles_;
  std::uint64_t last_handle_ = 0;
  std::vector<std::size_t> used_;  // bytes, by device
  std::size_t pinned_ = 0;         // bytes
  std::size_t pinned_limit_;       // bytes
};

}  // namespace recoup::stand_in
