// Paging: which allocations of a kernel are in paged memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "csrc/engine/base/op.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Paged results]
// ~~~~~~~~~~~~~~~~~~~~
// Paged memory is the overflow memory of the CPU. An op whose operands, results and workspace do
// not fit in the budget together runs once more, if Options::page_window is set, and what did not
// fit is in paged memory: Note [Paged memory]. If a kernel must not run twice, memory that does not
// fit is paged at once. The window is charged when the first op of a scope needs it. Such a result
// has an address at all times, so it is never evicted, costs no bytes of the budget, and cannot be
// moved. Its op is not recorded: nothing has to compute it again.
//
// Live runs and simulations page the same allocations. A simulation has no memory for them: it
// charges the window, and its results are external storages that cost nothing.
struct Paging {
  // Smaller allocations are not worth a block of paged memory.
  static constexpr Bytes kLeast{1 << 20};

  enum class When : std::uint8_t {
    kNever,
    kIfNeeded,  // if there is no room in the pool
    kAlways,
  };
  When when = When::kNever;
  Bytes least{0};  // smaller allocations are not paged

  [[nodiscard]] bool takes(Bytes size) const { return when != When::kNever && size >= least; }

  struct Rules {
    Bytes window{0};          // Options::page_window; 0: nothing is paged
    bool everything = false;  // TestAids::page
  };
  // For the first run of an op's kernel.
  [[nodiscard]] static Paging at_first(const Rules& rules, const KernelLimits& limits) {
    if (!limits.may_overflow || rules.window == Bytes(0)) {
      return {};
    }
    if (rules.everything) {
      return {.when = When::kAlways, .least = Bytes(1)};
    }
    return limits.once ? Paging{.when = When::kIfNeeded, .least = kLeast} : Paging();
  }
  // After a run that failed for lack of `asked` bytes. nullopt: paging does not help. Other memory
  // of the kernel may not fit either, once a part is paged, so each run pages smaller allocations.
  [[nodiscard]] std::optional<Paging> after(const Rules& rules, const KernelLimits& limits,
                                            Bytes asked) const {
    if (when == When::kNever) {
      const bool may = limits.may_overflow && rules.window > Bytes(0) && asked >= kLeast;
      return may ? std::optional(Paging{.when = When::kAlways, .least = asked}) : std::nullopt;
    }
    if (least <= kLeast) {
      return std::nullopt;
    }
    // The window, which is no memory of the kernel, may be what does not fit.
    const Bytes smaller = asked < least ? std::max(asked, kLeast) : kLeast;
    return Paging{.when = When::kAlways, .least = smaller};
  }
};

}  // namespace recoup::detail
