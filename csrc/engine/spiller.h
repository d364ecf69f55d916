// Spiller: takes bytes that the second tier keeps, and fetches them.
#pragma once

#include <optional>
#include <vector>

#include "csrc/engine/context.h"
#include "csrc/engine/values.h"

namespace recoup::detail {

class Spiller {
 public:
  // Both must outlive it.
  Spiller(Context& context, Values& values);

  // What it costs to spill an evictable value and to fetch it once; nullopt: it cannot be.
  [[nodiscard]] std::optional<Nanoseconds> price_of(const Value& value) const;
  // Takes the bytes of an evictable value. False, and it is resident as before: it could not be
  // written, or the storage refuses, which makes a leaf of it. A leaf is not evictable then.
  bool spill(ValueId id);
  // The same of one whose bytes are outside of the pool, and may leave there.
  bool spill_outside(ValueId id);
  // What had no room there is evictable again, if some came free.
  void reconsider() {
    if (!refused_.empty() && tier_.gave_back()) {
      take_refused();
    }
  }
  // Gives a spilled value its bytes back, in a block that a kernel held. Throws what the device
  // throws; then the value is as it was.
  void fetch(ValueId id, BlockId block);

 private:
  bool write(ValueId id, BlockId slot);
  void keep(ValueId id, BlockId slot);
  void close();
  void take_refused();

  Context& context_;
  Lineage& lineage_;
  Values& values_;
  Tier& tier_;
  std::vector<ValueId> refused_;  // may be gone, and others in their place
};

}  // namespace recoup::detail
