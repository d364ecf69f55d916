// Spiller: frees the bytes of values by writing them to the spill tier.
#pragma once

#include <optional>
#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

class Spiller {
 public:
  // All arguments must outlive this object.
  Spiller(Context& context, Values& values, AsyncCopies& copies);

  // The price of spilling an evictable value and fetching it once; nullopt: it cannot be spilled.
  [[nodiscard]] std::optional<Nanoseconds> price_of(const Value& value) const;
  // Spills an evictable value. False: it is still resident. Either it could not be written, and a
  // non-recomputable value is not evictable any more; or its storage refused, and the value is
  // disowned.
  bool spill(ValueId id);
  void drop_outside(ValueId id) { values_.drop_copy(id); }
  // The tier's copy of a value whose bytes are outside the pool. It is dropped with this object.
  using OutsideCopy = Handle<Spiller, ValueId, &Spiller::drop_outside>;
  // Spills a value whose bytes are outside the pool, in two steps: the first writes it, and
  // returns an empty handle if that is impossible; the second frees its bytes.
  [[nodiscard]] OutsideCopy write_outside(ValueId id) {
    return write(id) ? OutsideCopy(*this, id) : OutsideCopy();
  }
  void leave_outside(OutsideCopy copy);
  // Begins to write an evictable value, which keeps its bytes. False: no slot is free, or the value
  // has ended.
  bool begin_write(ValueId id);
  // Copies a resident value to the tier; it keeps its bytes. False: the value is not in the pool, a
  // copy of it is under way, or the tier does not take it.
  bool save(ValueId id);
  // Waits for all copies, and frees the slots of all resident values.
  void drop_all_copies();
  // If slots were freed, values that got none before become evictable again.
  void reconsider() {
    if (!refused_.empty() && tier_.gave_back()) {
      take_refused();
    }
  }

 private:
  [[nodiscard]] bool has_room(Bytes nbytes) const;
  // For the content of a value. A non-recomputable one may get a held slot. Empty: there is none,
  // or the value has ended.
  [[nodiscard]] Tier::Slot take_slot(ValueId id);
  void drop_copies(Bytes needed);
  [[nodiscard]] std::vector<ValueId> clean_values() const;
  bool copy(ValueId id);
  bool write(ValueId id);
  void keep(ValueId id);
  void take_refused();

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  AsyncCopies& copies_;
  Tier& tier_;
  std::vector<ValueId> refused_;  // got no slot; their ids may be used again by now
};

}  // namespace recoup::detail
