// UseForecast: knows which storages the coming ops use.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "recoup/types.h"

namespace recoup::detail {

// All methods are called under the engine's lock.
class UseForecast {
 public:
  virtual ~UseForecast() = default;

  // Adds the storages that the op `n` ops after the running one will use. False: they are not
  // known.
  [[nodiscard]] virtual bool uses_ahead(std::uint32_t n,
                                        std::vector<StorageId>& storages) const = 0;
  // The number of ops from the running one to the next use of the storage; nullopt: unknown.
  [[nodiscard]] virtual std::optional<std::uint32_t> next_use(StorageId storage) const = 0;
  // A value that the program's step will spill later, which can be written now and has no copy in
  // the tier. Each value is returned once. Invalid: none is known.
  [[nodiscard]] virtual ValueId next_to_write() = 0;
  // The part of the time of a copy that the program is expected to wait for, in (0, 1].
  [[nodiscard]] virtual double waited_part() const = 0;
};

}  // namespace recoup::detail
