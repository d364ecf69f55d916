// NumericDevice: its memory is a vector of bytes, and its ops are integer functions of the bytes
// that they read. It is simple enough to be obviously correct, and any wrong byte changes
// everything that is computed from it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "tests/core/support/numeric_tier.h"

namespace recoup::detail {

// How an op uses one of its operands, which are distinct storages.
enum class Access : std::uint8_t {
  kRead,
  kUpdate,     // reads all of it and changes every other byte
  kOverwrite,  // reads none of it and writes every byte
};

inline bool reads(Access access) { return access != Access::kOverwrite; }
inline bool writes(Access access) { return access != Access::kRead; }

// What an op computes: every byte that it writes depends on every byte that it reads.
struct Kernel {
  std::uint64_t seed = 0;
  std::vector<Access> operands;
  std::vector<Bytes> fresh;      // sizes of the storages that it makes
  std::vector<Bytes> workspace;  // sizes of further allocations
  Bytes keeps{0};                // size of its first allocation, which it keeps
  bool stops_half_way = false;   // throws in the middle of its first write
  bool overwritable = false;     // its results may overwrite what it only reads
};

class KernelFailed : public std::runtime_error {
 public:
  KernelFailed() : std::runtime_error("the kernel failed") {}
};

using Span = std::span<std::uint8_t>;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a + 0x9e3779b97f4a7c15ULL) ^ (b * 0xff51afd7ed558ccdULL);
  x = (x ^ (x >> 31)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 29);
}

inline std::uint64_t digest(std::span<const std::uint8_t> bytes, std::uint64_t seed) {
  std::uint64_t sum = seed;
  for (std::uint8_t byte : bytes) {
    sum = mix(sum, byte);
  }
  return sum;
}

inline std::uint8_t pattern(std::uint64_t seed, std::size_t position) {
  return static_cast<std::uint8_t>(mix(seed, position) >> 24);
}

// Runs a kernel, on the engine's memory or on plain vectors for the expected contents.
inline void compute(const Kernel& kernel, std::span<const Span> operands,
                    std::span<const Span> fresh) {
  std::uint64_t seed = kernel.seed;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (reads(kernel.operands[i])) {
      seed = digest(operands[i], seed);
    }
  }
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    for (std::size_t at = 0; at < fresh[i].size(); ++at) {
      fresh[i][at] = pattern(mix(seed, i), at);
    }
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!writes(kernel.operands[i])) {
      continue;
    }
    const bool update = kernel.operands[i] == Access::kUpdate;
    const std::size_t end = operands[i].size() / (kernel.stops_half_way ? 2 : 1);
    for (std::size_t at = 0; at < end; at += update ? 2 : 1) {
      operands[i][at] = pattern(mix(seed, 1000 + i), at);
    }
    if (kernel.stops_half_way) {
      throw KernelFailed();
    }
  }
  if (kernel.stops_half_way) {
    throw KernelFailed();
  }
}

// The program's side of a storage; corresponds to a StorageImpl in the Torch binding.
struct NumericStorage {
  StorageId id;
  Bytes nbytes;
  std::optional<PoolOffset> offset;   // of its bytes in the arena, if they are there
  std::vector<std::uint8_t> outside;  // its bytes, if it was made outside the pool
  bool external = false;
  bool shared = false;     // refuses to release its bytes
  bool dead = false;       // the engine has received its death and may not touch it again
  bool abandoned = false;  // the user has released it, but the engine does not know it
  bool forgotten = false;
};

struct NumericPayload {
  Kernel kernel;
  std::vector<Bytes> operand_bytes;
  std::string name;
  CostKey cost_key = 0;
};

class NumericDevice final : public Device {
 public:
  static constexpr std::uint8_t kPoison = 0xdd;
  static constexpr std::uint8_t kGivenUp = 0xee;
  static constexpr std::size_t kMostMemory = 64 << 20;

  explicit NumericDevice(Bytes capacity, const PageSizes& sizes = {}) : pages(sizes) {
    grow(capacity);
  }
  void bind(Engine& engine) { engine_ = &engine; }
  // Changes that the engine does not know.
  std::vector<SegmentChange> segment_changes;
  // Bytes of a segment that its allocator keeps.
  Bytes keeps_of_segment{0};
  [[nodiscard]] std::vector<SegmentChange> changed_segments() override {
    return std::exchange(segment_changes, {});
  }
  [[nodiscard]] Bytes take_segment(Bytes size) override {
    return std::max(Bytes(0), size - keeps_of_segment);
  }
  void on_slow(double ratio, double /*most*/, Bytes /*budget*/) override {
    slow_ratios.push_back(ratio);
  }
  std::vector<double> slow_ratios;
  void wait_for_outside() override { ++waits_for_outside; }
  int waits_for_outside = 0;
  // Blocks that kernels keep.
  std::vector<BlockId> kept;
  void grow(Bytes capacity) {
    arena_.reserve(kMostMemory);  // a copy under way has an address
    ASSERT_LE(capacity.count(), static_cast<std::int64_t>(kMostMemory));
    arena_.resize(static_cast<std::size_t>(capacity.count()), kPoison);
  }

  // Allocates memory and runs the kernel. Frees all its blocks if it throws.
  void execute(const Kernel& kernel, std::span<const Span> operands, std::span<BlockId> outputs) {
    std::vector<BlockId> held;
    BlockId keeps;
    const std::size_t count = kernel.fresh.size();
    try {
      keeps = kernel.keeps > Bytes(0) ? allocate(kernel.keeps) : BlockId();
      std::vector<Span> fresh;
      for (std::size_t i = 0; i < count + kernel.workspace.size(); ++i) {
        const Bytes size = i < count ? kernel.fresh[i] : kernel.workspace[i - count];
        held.push_back(allocate(size));
        const Span bytes =
            at({.external = nullptr, .offset = engine_->pool().offset(held.back())}, size);
        if (!kernel.overwritable) {
          std::fill(bytes.begin(), bytes.end(), kPoison);
        }
        if (i < count) {
          fresh.push_back(bytes);
        }
      }
      if (during_kernel) {
        const auto once = std::exchange(during_kernel, nullptr);
        once();
      }
      if (kernel_fault_ > 0 && --kernel_fault_ == 0) {
        Kernel failing = kernel;
        failing.stops_half_way = true;
        compute(failing, operands, fresh);
      }
      compute(kernel, operands, fresh);
    } catch (...) {
      std::for_each(held.begin(), held.end(), [this](BlockId block) { engine_->free(block); });
      if (keeps.valid()) {
        engine_->free(keeps);
      }
      throw;
    }
    if (keeps.valid()) {
      kept.push_back(keeps);
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (i < count) {
        outputs[i] = held[i];
      } else {
        engine_->free(held[i]);
      }
    }
  }

  [[nodiscard]] Span at(const Location& location, Bytes size) {
    if (location.external != nullptr) {
      auto* const storage = static_cast<NumericStorage*>(location.external);
      EXPECT_FALSE(storage->forgotten);
      return Span(storage->outside).first(static_cast<std::size_t>(size.count()));
    }
    return Span(arena_).subspan(static_cast<std::size_t>(location.offset.count()),
                                static_cast<std::size_t>(size.count()));
  }
  [[nodiscard]] Span bytes_of(NumericStorage& storage) {
    if (storage.external) {
      return storage.outside;
    }
    return at({.external = nullptr, .offset = storage.offset.value()}, storage.nbytes);
  }

  // Overwrites all memory outside of blocks, so that stale reads are detected.
  void scrub() {
    std::size_t end = 0;
    for (const BlockView& block : engine_->pool().taken()) {
      const auto start = static_cast<std::size_t>(block.offset.count());
      std::fill(arena_.begin() + static_cast<std::ptrdiff_t>(end),
                arena_.begin() + static_cast<std::ptrdiff_t>(start), kPoison);
      end = start + static_cast<std::size_t>(block.size.count());
    }
    std::fill(arena_.begin() + static_cast<std::ptrdiff_t>(end), arena_.end(), kPoison);
  }

  // Makes the k-th allocation of a kernel from now on throw std::bad_alloc; 0: none.
  void fail_allocation(std::int64_t k) { allocation_fault_ = k; }
  // Makes the k-th kernel from now on throw half way; 0: none.
  void fail_kernel(std::int64_t k) { kernel_fault_ = k; }
  // Makes the k-th write to, or read from, the spill tier from now on fail; 0: none.
  void fail_spill(std::int64_t k) { tier_.fail_write(k); }
  void fail_fetch(std::int64_t k) { tier_.fail_read(k); }
  // Called once in the middle of the next kernel: actions of another thread.
  std::function<void()> during_kernel;
  // Storages that sweep_external() checks for abandoned ones.
  std::vector<NumericStorage*> externals;
  std::size_t bytes_a_payload = sizeof(NumericPayload);
  const PageSizes pages;
  int discards = 0;
  // Changes the results of replays, to test Options::check_replays.
  std::uint64_t replay_noise = 0;
  // The reported duration of a replay.
  Nanoseconds replay_time{100};

  [[nodiscard]] std::int64_t payloads() const { return payloads_; }
  [[nodiscard]] void* make_payload(NumericPayload payload) {
    ++payloads_;
    return new NumericPayload(std::move(payload));
  }

  // ---- Device ----
  Measurement replay(void* payload, std::span<const Location> inputs,
                     std::span<const PoolOffset> written, std::span<BlockId> outputs) override {
    NumericPayload op = *static_cast<NumericPayload*>(payload);
    op.kernel.seed ^= replay_noise;
    std::vector<Span> operands;
    std::size_t next_input = 0;
    std::size_t next_written = 0;
    for (std::size_t i = 0; i < op.operand_bytes.size(); ++i) {
      const Access access = op.kernel.operands[i];
      Location where;
      if (reads(access)) {
        where = inputs[next_input++];
      }
      if (writes(access)) {
        where = {.external = nullptr, .offset = written[next_written++]};
      }
      operands.push_back(at(where, op.operand_bytes[i]));
    }
    EXPECT_EQ(next_input, inputs.size());
    EXPECT_EQ(next_written, written.size());
    execute(op.kernel, operands, outputs);
    return {.key = op.cost_key, .took = replay_time};
  }
  [[nodiscard]] bool may_overwrite(const void* payload, std::size_t /*input*/) const override {
    return static_cast<const NumericPayload*>(payload)->kernel.overwritable;
  }
  void release(void* payload) noexcept override {
    --payloads_;
    delete static_cast<NumericPayload*>(payload);
  }
  [[nodiscard]] std::size_t payload_bytes(const void* /*payload*/) const noexcept override {
    return bytes_a_payload;
  }
  void attach(void* handle, PoolOffset offset) noexcept override {
    auto* const storage = static_cast<NumericStorage*>(handle);
    EXPECT_FALSE(storage->dead || storage->offset.has_value());
    storage->offset = offset;
  }
  [[nodiscard]] bool detach(void* handle, PoolOffset offset) noexcept override {
    auto* const storage = static_cast<NumericStorage*>(handle);
    EXPECT_FALSE(storage->dead);
    EXPECT_EQ(storage->offset, offset);
    if (storage->shared) {
      return false;
    }
    storage->offset.reset();
    return true;
  }
  void take_over(void* external) noexcept override {
    auto* const storage = static_cast<NumericStorage*>(external);
    EXPECT_FALSE(storage->forgotten || !storage->external);
    storage->external = false;
    std::fill(storage->outside.begin(), storage->outside.end(), kGivenUp);
  }
  [[nodiscard]] bool move_out(void* handle, PoolOffset offset, Bytes nbytes) noexcept override {
    auto* const storage = static_cast<NumericStorage*>(handle);
    EXPECT_FALSE(storage->dead || storage->external);
    EXPECT_EQ(storage->offset, offset);
    if (storage->shared) {
      return false;
    }
    const Span bytes = at({.external = nullptr, .offset = offset}, nbytes);
    storage->outside.assign(bytes.begin(), bytes.end());
    storage->offset.reset();
    storage->external = true;
    externals.push_back(storage);
    return true;
  }
  void forget(void* external) noexcept override {
    auto* const storage = static_cast<NumericStorage*>(external);
    EXPECT_FALSE(storage->forgotten);
    storage->forgotten = true;
  }
  void copy(PoolOffset to, const Location& from, Bytes size) override {
    const Span source = at(from, size);
    const std::vector<std::uint8_t> bytes(source.begin(), source.end());
    std::copy(bytes.begin(), bytes.end(), at({.external = nullptr, .offset = to}, size).begin());
  }
  void poison(PoolOffset where, Bytes size) noexcept override {
    const Span bytes = at({.external = nullptr, .offset = where}, size);
    std::fill(bytes.begin(), bytes.end(), kGivenUp);
  }
  std::uint64_t hash(const Location& from, Bytes size, const void* /*payload*/,
                     std::size_t /*result*/) override {
    return digest(at(from, size), 1);
  }
  [[nodiscard]] void* address(const Location& location) override {
    return at(location, Bytes(0)).data();
  }
  [[nodiscard]] TierStore* tier() noexcept override { return &tier_; }
  [[nodiscard]] bool lend_tier() noexcept override { return true; }
  [[nodiscard]] PageSizes page_sizes() const override { return pages; }
  void discard(PoolOffset from, PoolOffset to) noexcept override {
    EXPECT_EQ(from.count() % pages.page.count() + to.count() % pages.page.count(), 0);
    const auto size = static_cast<std::int64_t>(arena_.size());
    std::fill(arena_.begin() + std::min(from.count(), size),
              arena_.begin() + std::min(to.count(), size), kPoison);
    ++discards;
  }
  [[nodiscard]] std::string name(const void* payload) const override {
    return static_cast<const NumericPayload*>(payload)->name;
  }
  void sweep_external() override {
    for (NumericStorage* storage : externals) {
      if (storage->abandoned && !storage->dead) {
        storage->dead = true;
        engine_->storage_died(storage->id);
      }
    }
  }

 private:
  BlockId allocate(Bytes size) {
    if (allocation_fault_ > 0 && --allocation_fault_ == 0) {
      throw std::bad_alloc();
    }
    return engine_->allocate(size);
  }

  Engine* engine_ = nullptr;
  std::vector<std::uint8_t> arena_;
  std::int64_t payloads_ = 0;
  std::int64_t allocation_fault_ = 0;
  std::int64_t kernel_fault_ = 0;
  NumericTier tier_;
};

}  // namespace recoup::detail
