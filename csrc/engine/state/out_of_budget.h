// OutOfBudgetReporter: throws errors that say what holds the memory and which budget would be
// enough.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"

namespace recoup::detail {

// Who learns of an error, in addition to the caller.
enum class Announce : std::uint8_t { kToObserver, kToNone };

class OutOfBudgetReporter {
 public:
  // Both arguments must outlive this object.
  OutOfBudgetReporter(const Context& context, const Enough& enough)
      : context_(context), enough_(enough) {}

  // Throws OutOfBudget for `asked` bytes. An empty `reason` means that the bytes are not free;
  // `fragmented`, that they are free but not contiguous.
  [[noreturn]] void fail(Bytes asked, std::string reason, bool fragmented = false) const;
  // Throws OutOfBudget for a change to a smaller budget. `stays`: the bytes that it must have.
  [[noreturn]] void fail_to_shrink(Bytes budget, Bytes stays, std::string reason,
                                   Announce announce) const;
  // A budget in which everything on record can be resident at once, with the workspace of a replay
  // in addition, so that restoring one value evicts no other.
  [[nodiscard]] Bytes all_resident() const;

 private:
  [[nodiscard]] OutOfBudgetReport report_of(Bytes budget, Bytes asked, std::string reason) const;
  void add_spill_tier(OutOfBudgetReport& report) const;
  [[nodiscard]] Bytes next_budget(const OutOfBudgetReport& report) const;
  const Context& context_;
  const Enough& enough_;
};

}  // namespace recoup::detail
