// Spiller: takes bytes that the spill tier keeps.
#pragma once

#include <optional>
#include <vector>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/values.h"
#include "csrc/engine/tier/async_copies.h"

namespace recoup::detail {

class Spiller {
 public:
  // All must outlive it.
  Spiller(Context& context, Values& values, AsyncCopies& copies);

  // What it costs to spill an evictable value and to fetch it once; nullopt: it cannot be.
  [[nodiscard]] std::optional<Nanoseconds> price_of(const Value& value) const;
  // Takes the bytes of an evictable value. False, and it is resident as before: it could not be
  // written, or the storage refuses, which makes a non-recomputable value of it. A non-recomputable
  // value is not evictable then.
  bool spill(ValueId id);
  // The same of one whose bytes are outside of the pool, and may leave there.
  bool spill_outside(ValueId id);
  // Begins to write an evictable value, which keeps its bytes. False: there is no room.
  bool begin_write(ValueId id);
  // Writes a resident value of the pool, which keeps its bytes. False: that cannot be.
  bool save(ValueId id);
  // The tier has nothing of what is resident, and no copy is under way.
  void drop_all_copies();
  // What had no room there is evictable again, if some came free.
  void reconsider() {
    if (!refused_.empty() && tier_.gave_back()) {
      take_refused();
    }
  }

 private:
  [[nodiscard]] bool has_room(Bytes nbytes) const;
  // For a non-recomputable value, one that is held for it will do.
  std::optional<BlockId> take_slot(Bytes nbytes, bool source);
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
  std::vector<ValueId> refused_;  // may be gone, and others in their place
};

}  // namespace recoup::detail
