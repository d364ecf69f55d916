// Device: the interface through which the engine reaches memory and kernels. The Torch binding
// implements it with real tensors, the simulator with numbers; the engine does not distinguish
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/base/footprint.h"
#include "csrc/engine/base/op.h"
#include "recoup/types.h"

namespace recoup::detail {

// Where the bytes of a value are: in the pool at `offset`, or outside of it. `external` is the
// device's record of a storage outside the pool; null for a storage in the pool.
struct Location {
  void* external = nullptr;
  PoolOffset offset;
};

class TierStore;

class Device {
 public:
  virtual ~Device() = default;

  // Runs a recorded op again. inputs[i] is the location of the op's i-th input. written[i] is the
  // block that stands for its i-th written storage and holds the content from before the op. The
  // device allocates the op's results through the engine and puts the block of the i-th fresh
  // output into outputs[i], or leaves it invalid if the op did not make it. Called with the
  // engine's lock held; the device releases the lock while kernels run. Returns how long the kernel
  // took, including the time to make room for it; a key of 0 means that the measurement must not be
  // learned from. Throws what the kernel throws, after freeing all blocks that it allocated.
  virtual Measurement replay(void* payload, std::span<const Location> inputs,
                             std::span<const PoolOffset> written, std::span<BlockId> outputs) = 0;
  // The run is slow in this budget: its ops and replays cost `ratio` times as much as its ops. It
  // fails if they cost `most` times as much; 0: it does not. Called once, with the engine's lock
  // held.
  virtual void on_slow(double /*ratio*/, double /*most*/, Bytes /*budget*/) {}
  // Whether a replay of the op may overwrite the bytes of its input with that index by those of a
  // result of the same size: Note [Results in place].
  [[nodiscard]] virtual bool may_overwrite(const void* /*payload*/, std::size_t /*input*/) const {
    return false;
  }
  // Releases the payload of an op whose record is gone.
  virtual void release(void* payload) noexcept = 0;
  [[nodiscard]] virtual std::size_t payload_bytes(const void* payload) const noexcept = 0;

  // Gives the pool's bytes at `offset` to a storage without bytes.
  virtual void attach(void* handle, PoolOffset offset) noexcept = 0;
  // Takes the bytes, which the engine expects at `offset`, from a storage. Returns false and does
  // nothing if the storage's bytes are elsewhere, or if the storage is dying on another thread: the
  // engine may not take the bytes then.
  [[nodiscard]] virtual bool detach(void* handle, PoolOffset offset) noexcept = 0;
  // Frees the own memory of a storage that was made outside the pool. From now on it is like a
  // storage of the pool that has no bytes, and the record is its handle.
  virtual void take_over(void* external) noexcept = 0;
  // Returns when no work runs that may use the own memory of storages. Called after storages of a
  // segment were copied, before they are taken over.
  virtual void wait_for_outside() {}
  // Called after the last take_over of a series.
  virtual void taken_over() noexcept {}
  // Note [Segments]. The segments whose returnable bytes differ from what was last reported.
  [[nodiscard]] virtual std::vector<SegmentChange> changed_segments() { return {}; }
  // All storages of a segment of `size` bytes have been taken over. Returns the number of bytes, at
  // most `size`, by which the memory outside of the pool has shrunk. As many have been added to the
  // memory of the pool.
  [[nodiscard]] virtual Bytes take_segment(Bytes size) { return size; }
  // Note [Leaving the pool]: the reverse of take_over. Copies the bytes of a storage, `nbytes` at
  // `offset`, to memory of its own; its handle is an external record from now on. Returns false and
  // does nothing if the bytes are not there or no memory is left.
  [[nodiscard]] virtual bool move_out(void* handle, PoolOffset offset, Bytes nbytes) noexcept = 0;
  // The engine no longer uses an external storage; only its owner does.
  virtual void forget(void* external) noexcept = 0;
  // Calls forget for a storage that the program has released. If it has no owner any more, its
  // memory is free when this returns.
  virtual void forget_released(void* external) noexcept { forget(external); }
  // Note [Who keeps an external storage].

  // A record of lineage reads an external storage from now on: the device keeps its bytes, even
  // when the program releases the storage. May be called again while the bytes are kept.
  virtual void keep(void* /*external*/) noexcept {}
  // No record reads the storage any more: only the program keeps its bytes.
  virtual void let_go(void* /*external*/) noexcept {}
  // Keeps the bytes until the current call into the engine has ended. False: the program has
  // released the storage, and its bytes are gone.
  [[nodiscard]] virtual bool hold(void* /*external*/) { return true; }

  // The sizes in which the pool's memory is committed and given back to the system. Called while
  // the engine is constructed. By default no memory is given back.
  [[nodiscard]] virtual PageSizes page_sizes() const { return {}; }
  // Gives the memory of these unused whole pages back to the system. `to` may be beyond the pool's
  // addresses, by less than a huge page.
  virtual void discard(PoolOffset /*from*/, PoolOffset /*to*/) noexcept {}

  // Copies `size` bytes into the pool. The ranges may overlap.
  virtual void copy(PoolOffset to, const Location& from, Bytes size) = 0;
  // Overwrites unused bytes of the pool: TestAids::poison.
  virtual void poison(PoolOffset at, Bytes size) noexcept = 0;
  // Measured time per byte of a long copy within the pool, in nanoseconds; nullopt: unknown. Called
  // while the engine is constructed.
  [[nodiscard]] virtual std::optional<double> move_ns_per_byte() const { return std::nullopt; }
  // Where the bytes of a value are; null if the device has no memory.
  [[nodiscard]] virtual void* address(const Location& location) = 0;

  // ---- the spill tier ----
  // Its memory; null: there is none. Constant from the engine's construction on, or from a call of
  // lend_tier that returned true.
  [[nodiscard]] virtual TierStore* tier() noexcept { return nullptr; }
  // Makes memory for a spill tier although none was configured. False: that is not possible.
  [[nodiscard]] virtual bool lend_tier() noexcept { return false; }
  // A write to the tier has failed. The tier is not written any more.
  virtual void on_tier_failure() {}

  // A digest, for Options::check_replays, of those bytes of a result that the payload's op has
  // defined. `result` counts the storages that the op wrote and then those that it made, in the
  // order of its OpRecord.
  virtual std::uint64_t hash(const Location& from, Bytes size, const void* payload,
                             std::size_t result) = 0;
  // Name of the op of a payload, for messages.
  [[nodiscard]] virtual std::string name(const void* payload) const = 0;
  // Calls Engine::storage_died for each external storage that the program has released.
  virtual void sweep_external() = 0;
};

}  // namespace recoup::detail
