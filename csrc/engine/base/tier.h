// Tier: the allocation of the spill tier and the cost of its copies. The bytes themselves belong to
// the device.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/handle.h"
#include "csrc/pool/pool.h"
#include "recoup/options.h"
#include "recoup/types.h"

namespace recoup::detail {

// The share of a copy's time by which it slows down the ops that it overlaps with. Measured with
// two busy cores: matrix products took 1.13 to 1.16 times as long.
inline constexpr double kProcessorFraction = 0.14;

// The time that a copy takes. One core waits for it.
struct TierSpeed {
  double write_ns_per_byte = 1.25;  // 0.8 GB/s, a virtual disk
  double read_ns_per_byte = 1.25;
  Nanoseconds each{100'000};  // per request, in addition to the bytes
};

// Note [The spill tier]
// A spilled value has no bytes in the pool: its content is in a slot of the spill tier and is
// fetched when it is needed. Spilling is the only way to free the bytes of a non-recomputable
// value. A recomputable value is spilled if that costs less than a replay. For its dependents a
// spilled value is as good as a resident one: no replay goes further back than a spilled value.
//
// When a copy cannot be written (the tier is full or its disk fails), the value stays resident.
class Tier {
 public:
  // A tier of `options.spill` bytes; 0 disables it.
  Tier(const Options& options, const TierSpeed& speed) : unit_(options.spill_unit), speed_(speed) {
    open(options.spill);
  }

  // Enables a tier that was disabled.
  void open(Bytes size) {
    if (size >= unit_ && unit_ > Bytes(0)) {
      slots_.emplace(PoolOptions{.capacity = Bytes(size.count() / unit_.count() * unit_.count()),
                                 .segment_size = Bytes(0),
                                 .alignment = unit_});
    }
  }
  [[nodiscard]] Bytes unit() const { return unit_; }
  [[nodiscard]] const TierSpeed& speed() const { return speed_; }

  // Whether values can be spilled.
  [[nodiscard]] bool open() const { return slots_ && !closed_; }
  [[nodiscard]] bool takes(Bytes nbytes) const { return open() && nbytes >= unit_; }
  // Stops all further writes. What has been written can still be fetched.
  void close() { closed_ = true; }
  [[nodiscard]] bool closed() const { return closed_; }

  void give_back(BlockId slot) {
    if (holding_) {
      put_held(slot);
      return;
    }
    slots_->free(slot);
    gave_back_ = true;
  }
  // A slot that no value has yet.
  using Slot = Handle<Tier, BlockId, &Tier::give_back>;
  // Allocates a slot; an empty handle: no room is left. A non-recomputable value (`source`) may get
  // one of the held slots.
  [[nodiscard]] Slot take(Bytes nbytes, bool source) {
    std::optional<BlockId> slot = source ? take_held(nbytes) : std::nullopt;
    if (!slot) {
      slot = slots_->allocate(nbytes, Zone::kLow);
    }
    peak_ = std::max(peak_, used());
    return slot ? Slot(*this, *slot) : Slot();
  }

  // Note [Parts] in in_parts.h. From now until let_go, slots that are given back are held for
  // non-recomputable values of the same size.
  void hold_slots() { holding_ = true; }
  // Holds one more slot of that size. False: no room is left.
  [[nodiscard]] bool hold(Bytes nbytes) {
    const auto slot = slots_->allocate(nbytes, Zone::kLow);
    if (slot) {
      put_held(*slot);
    }
    return slot.has_value();
  }
  void let_go() noexcept {
    for (const auto& [size, slots] : held_) {
      for (const BlockId slot : slots) {
        slots_->free(slot);
        gave_back_ = true;
      }
    }
    held_.clear();
    held_bytes_ = Bytes(0);
    holding_ = false;
  }
  // Whether a slot was given back since the last call.
  [[nodiscard]] bool gave_back() { return std::exchange(gave_back_, false); }
  [[nodiscard]] Bytes offset(BlockId slot) const { return slots_->offset(slot); }
  [[nodiscard]] Bytes size(BlockId slot) const { return slots_->size(slot); }
  [[nodiscard]] Bytes used() const { return slots_ ? slots_->used() - held_bytes_ : Bytes(0); }
  [[nodiscard]] Bytes peak() const { return peak_; }
  [[nodiscard]] bool has_room(Bytes nbytes) const {
    return slots_->largest_free() >= nbytes || has_held(nbytes);
  }

  [[nodiscard]] Nanoseconds write_cost(Bytes nbytes) const {
    return cost(nbytes, speed_.write_ns_per_byte);
  }
  [[nodiscard]] Nanoseconds read_cost(Bytes nbytes) const {
    return cost(nbytes, speed_.read_ns_per_byte);
  }
  // The cost of evicting bytes that are used again. `clean`: they have been written already.
  [[nodiscard]] Nanoseconds absence_cost(Bytes nbytes, bool clean) const {
    return (clean ? Nanoseconds(0) : write_cost(nbytes)) + read_cost(nbytes);
  }

  void check() const {
    if (slots_) {
      slots_->check();
    }
  }

 private:
  void put_held(BlockId slot) {
    held_[size(slot).count()].push_back(slot);
    held_bytes_ += size(slot);
  }
  [[nodiscard]] bool has_held(Bytes nbytes) const {
    const auto found = held_.find(slots_->round_up(nbytes).count());
    return found != held_.end() && !found->second.empty();
  }
  [[nodiscard]] std::optional<BlockId> take_held(Bytes nbytes) {
    if (!has_held(nbytes)) {
      return std::nullopt;
    }
    std::vector<BlockId>& slots = held_[slots_->round_up(nbytes).count()];
    const BlockId slot = slots.back();
    slots.pop_back();
    held_bytes_ -= size(slot);
    return slot;
  }
  [[nodiscard]] Nanoseconds cost(Bytes nbytes, double ns_per_byte) const {
    return speed_.each + Nanoseconds(static_cast<std::int64_t>(
                             ns_per_byte * static_cast<double>(nbytes.count())));
  }

  Bytes unit_;
  TierSpeed speed_;
  std::optional<Pool> slots_;
  Bytes peak_{0};
  bool closed_ = false;
  bool gave_back_ = false;
  bool holding_ = false;
  std::unordered_map<std::int64_t, std::vector<BlockId>> held_;  // by size
  Bytes held_bytes_{0};
};

}  // namespace recoup::detail
