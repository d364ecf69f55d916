// What an out-of-budget error says: what holds the memory, and which budget would do.
#pragma once

#include <string>
#include <utility>

#include "csrc/engine/state/context.h"
#include "csrc/engine/state/enough.h"

namespace recoup::detail {

class OutOfBudgetReporter {
 public:
  // Both must outlive it.
  OutOfBudgetReporter(const Context& context, const Enough& enough)
      : context_(context), enough_(enough) {}

  // Throws OutOfBudget for `asked` bytes. An empty reason: they are not there. `fragmented`: they
  // are, but in pieces.
  [[noreturn]] void fail(Bytes asked, std::string reason, bool fragmented = false) const {
    fail_in(context_.options.budget, asked, std::move(reason), fragmented);
  }
  // The same of a budget that is not in force.
  [[noreturn]] void fail_in(Bytes budget, Bytes asked, std::string reason,
                            bool fragmented = false) const;
  // A budget in which everything on record could have its bytes at once, and a replay what it needs
  // beside them, so that nothing is evicted to get something else back.
  [[nodiscard]] Bytes all_resident() const;

 private:
  [[nodiscard]] std::string of_spill_tier() const;
  const Context& context_;
  const Enough& enough_;
};

}  // namespace recoup::detail
