// The world as the engine sees it. The Torch binding implements it with real tensors, the simulator
// with numbers; the engine cannot tell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/engine/base/cost_memory.h"
#include "csrc/engine/base/footprint.h"
#include "csrc/engine/base/tier.h"
#include "recoup/types.h"

namespace recoup::detail {

// Where the bytes of a value are: in the pool at `offset`, or outside it behind `external`, the
// device's own record of a storage.
struct Location {
  void* external = nullptr;
  PoolOffset offset;
};

class Device {
 public:
  virtual ~Device() = default;

  // Runs a recorded op again. inputs[i] is where the op's i-th input is; written[i] is the block
  // that stands for its i-th written storage and holds the content from before. The device
  // allocates what the op makes through the engine and puts the block of the i-th fresh output into
  // outputs[i] (left invalid when the op did not make it). Called with the engine's lock held,
  // which the device gives up while kernels run. Returns how long the kernel took, with what was
  // done to make room for it; a key of 0: that says nothing. Throws what the kernel throws; then no
  // block is left behind.
  virtual Measurement replay(void* payload, std::span<const Location> inputs,
                             std::span<const PoolOffset> written, std::span<BlockId> outputs) = 0;
  // The record of an op is gone.
  virtual void release(void* payload) noexcept = 0;
  [[nodiscard]] virtual std::size_t payload_bytes(const void* payload) const noexcept = 0;

  // A storage without bytes gets some.
  virtual void attach(void* handle, PoolOffset offset) noexcept = 0;
  // Takes its bytes, which the engine knows to be at `offset`, from a storage. False, and nothing
  // done, when they are no longer there, or the storage is dying on another thread: then they are
  // not ours to take.
  [[nodiscard]] virtual bool detach(void* handle, PoolOffset offset) noexcept = 0;
  // A storage that was made outside the pool is like those in it from now on, without bytes: its
  // own memory is given back. The record is its handle.
  virtual void take_over(void* external) noexcept = 0;
  // All that there was to take over has been.
  virtual void taken_over() noexcept {}
  // Note [Leaving the pool]: the reverse. Copies the bytes of a storage, `nbytes` at `offset`, to
  // memory of its own; its handle is an external record from now on. False, and nothing done, when
  // they are not there, or there is no memory.
  [[nodiscard]] virtual bool move_out(void* handle, PoolOffset offset, Bytes nbytes) noexcept = 0;
  // An external storage is no longer needed by anybody but its owner.
  virtual void forget(void* external) noexcept = 0;
  // Note [Who keeps an external storage]
  // A record of lineage reads an external storage from now on: the device keeps its bytes, also
  // when the program lets the storage go. Called again while it is so.
  virtual void keep(void* /*external*/) noexcept {}
  // No record reads it any more: the program alone keeps it.
  virtual void let_go(void* /*external*/) noexcept {}
  // Keeps its bytes until the current call into the engine has ended. False: the program has let it
  // go, and there are none.
  [[nodiscard]] virtual bool hold(void* /*external*/) { return true; }

  // How the pool's memory comes and goes; asked while the engine is made. By default none is given
  // back.
  [[nodiscard]] virtual PageSizes page_sizes() const { return {}; }
  // Nobody uses these whole pages: their memory goes back to the system.
  virtual void discard(PoolOffset /*from*/, PoolOffset /*to*/) noexcept {}

  // Copies `size` bytes into the pool; the ranges may overlap.
  virtual void copy(PoolOffset to, const Location& from, Bytes size) = 0;
  // Overwrites bytes of the pool that hold nothing any more: TestAids::poison.
  virtual void poison(PoolOffset at, Bytes size) noexcept = 0;
  // What a byte of a long copy within the pool takes, measured; nullopt: unknown. It is asked while
  // the engine is made.
  [[nodiscard]] virtual std::optional<double> move_ns_per_byte() const { return std::nullopt; }
  // ---- the spill tier: bytes at offsets of its own ----
  // Begins to write `size` bytes there, a copy. Nobody changes them until it has ended.
  virtual void begin_spill(Bytes /*to*/, const Location& /*from*/, Bytes /*size*/) {}
  // Waits for the copy to that place. False: it cannot be written; what was there may be gone.
  [[nodiscard]] virtual bool end_spill(Bytes /*to*/) { return false; }
  // Whether these bytes are those that were written there last. Options::spill_compares is off: no
  // kernel has had them since, and true is right.
  [[nodiscard]] virtual bool unchanged(Bytes /*to*/, const Location& /*from*/, Bytes /*size*/) {
    return true;
  }
  // Begins to read what was written there last. Nobody looks at the bytes until it has ended.
  virtual void begin_fetch(PoolOffset /*to*/, Bytes /*from*/, Bytes /*size*/) {}
  // Waits for the copy from that place. Throws what says that it cannot be read, or is not the
  // same.
  virtual void end_fetch(Bytes /*from*/) {}
  // Makes room for a spill tier that was not asked for. False: there is none.
  [[nodiscard]] virtual bool lend_tier() noexcept { return false; }
  // What copies there take, measured; nullopt: unknown. Asked while the engine is made, if there
  // is to be one.
  [[nodiscard]] virtual std::optional<TierSpeed> tier_speed() const { return std::nullopt; }

  // A digest, for verify mode, of what an op of this payload defined of the bytes of its result:
  // `result` counts what it wrote and then what it made, as its OpRecord has them.
  virtual std::uint64_t hash(const Location& from, Bytes size, const void* payload,
                             std::size_t result) = 0;
  // Name of the op of a payload, for messages.
  [[nodiscard]] virtual std::string name(const void* payload) const = 0;
  // External storages that the program has let go are reported with Engine::storage_died.
  virtual void sweep_external() = 0;
};

}  // namespace recoup::detail
