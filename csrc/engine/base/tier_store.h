// TierStore: the interface of the memory that holds the bytes of a spill tier.
#pragma once

#include <optional>
#include <string>

#include "csrc/engine/base/tier.h"
#include "recoup/types.h"

namespace recoup::detail {

// A device copies values to and from it. The engine's Tier allocates the places in it. Not thread
// safe.
class TierStore {
 public:
  TierStore() = default;
  virtual ~TierStore() = default;
  TierStore(const TierStore&) = delete;
  TierStore& operator=(const TierStore&) = delete;

  // Begins to write `size` bytes to offset `to`. The bytes must not change until end_write has
  // returned.
  virtual void begin_write(Bytes to, const void* from, Bytes size) = 0;
  // Waits for the write to that offset. False: the write failed, and the old content there may be
  // lost.
  [[nodiscard]] virtual bool end_write(Bytes to) = 0;
  // Why the last failed write failed, and where; empty: none failed, or the reason is unknown.
  [[nodiscard]] virtual std::string failure() const { return {}; }
  // Whether these bytes equal what was last written to that offset. If Options::spill_compares is
  // off, no kernel has used the bytes since the write, and true is the right answer.
  [[nodiscard]] virtual bool holds(Bytes place, const void* bytes, Bytes size) const = 0;
  // Begins to read what was last written at offset `from`, of the same size. The destination must
  // not be used until end_read has returned.
  virtual void begin_read(void* to, Bytes from, Bytes size) = 0;
  // Waits for the read from that offset. Throws if the bytes cannot be read or differ from what was
  // written.
  virtual void end_read(Bytes from) = 0;
  // Measured speed of copies; nullopt: unknown.
  [[nodiscard]] virtual std::optional<TierSpeed> speed() = 0;
  // Recounts everything; throws InternalError on the first difference.
  virtual void check() const {}
};

}  // namespace recoup::detail
