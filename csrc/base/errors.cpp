#include "recoup/errors.h"

#include <iomanip>
#include <string_view>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"

namespace recoup {
namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(str_cat("recoup: internal error, please report it: ", condition,
                              " failed at ", file, ":", line, message.empty() ? "" : ": ",
                              message));
}

}  // namespace detail

namespace {

// A line of the table with a name and a size; empty if the size is 0.
std::string row(std::string_view name, Bytes size) {
  constexpr std::size_t kName = 36;
  constexpr std::size_t kSize = 10;
  const std::string text = detail::short_text(size);
  return size <= Bytes(0) ? std::string()
                          : detail::str_cat("  ", std::left, std::setw(kName), name, std::right,
                                            std::setw(kSize), text, "\n");
}

}  // namespace

std::string OutOfBudgetReport::headline() const {
  using detail::short_text;
  const std::string head = detail::str_cat("recoup: out of budget in ", op, ": ");
  if (asked <= Bytes(0)) {
    return head + reason;
  }
  const char* const whose = shared > Bytes(0) ? "this process's part of " : "the budget of ";
  if (fragmented) {
    return detail::str_cat(head, short_text(asked), " are free in ", whose, short_text(budget),
                           ", but not in one piece");
  }
  return detail::str_cat(head, short_text(asked), " more do not fit in ", whose, short_text(budget),
                         reason.empty() ? "" : "; ", reason);
}

std::string OutOfBudgetReport::to_string() const {
  using detail::short_text;
  using detail::str_cat;
  std::string text = headline() + ".\n";
  const bool is_part = shared > Bytes(0);
  const char* const budget_name = is_part ? "part" : "budget";
  text += row("shared budget", shared);
  text += row(is_part ? "part of this process" : "budget", budget);
  text += row("cannot be recomputed", non_recomputable);
  text += row("pinned, in use, or escaped", pinned);
  text += row("workspace of kernels", workspace);
  text += row("outside the pool", external);
  text += row("can be evicted", evictable);
  text += row("largest range that can be freed", largest_window);
  // By rounding, a bound slightly above the budget would be shown as the budget.
  const bool bounded = short_text(least) != short_text(budget);
  text += row(str_cat("lower bound of the ", budget_name), bounded ? least : Bytes(0));
  text += row(str_cat("upper bound of the ", budget_name), enough);
  if (fragmented) {
    text += str_cat("Immovable blocks divide the free memory: ", immovable,
                    " are pinned, in use, or escaped to other code. ");
  }
  if (op.find("::_foreach_") != std::string::npos) {
    text +=
        "This op needs all tensors of its lists at once; an optimizer with fused=True or "
        "foreach=False needs only a part of them at a time. ";
  }
  return text + advice();
}

std::string OutOfBudgetReport::advice() const {
  using detail::str_cat;
  if (enough == Bytes(0)) {
    return "No budget is enough: leave out block_size, or give a larger one.";
  }
  const std::string size = detail::short_size(next);
  if (leaving) {
    return str_cat("Next: run.resume(\"", size,
                   "\"). It restores evicted tensors and completes the exit.");
  }
  if (shrinking) {
    return str_cat("Next: run.set_budget(\"", size,
                   "\"). This is enough for what cannot be evicted now.");
  }
  const std::string tier = detail::short_size(next_spill);
  if (tier_full) {
    return str_cat("Next: spill=\"", tier, "\", or recoup run --spill ", tier,
                   ". This has room for what cannot be recomputed now.");
  }
  const bool is_part = shared > Bytes(0);
  std::string text =
      is_part ? str_cat("Next: a shared budget of ", detail::short_size(shared + next - budget),
                        " for all processes. ")
              : str_cat("Next: recoup.budget(\"", size, "\"), or recoup run --budget ", size, ". ");
  if (next < enough) {
    text += str_cat(
        "It may be too small: `recoup suggest SCRIPT` finds the least budget. The upper "
        "bound is enough, without evictions, for everything that ran so far and for "
        "this allocation",
        is_part ? ", if the other processes take no more than now." : ".");
  } else {
    text += str_cat(
        "This is enough, without evictions, for everything that ran so far and for this "
        "allocation",
        is_part ? ", if the other processes take no more than now." : "; later ops may need more.");
  }
  if (next_spill > Bytes(0)) {
    text += str_cat(" A spill tier (spill=\"", tier, "\", --spill ", tier,
                    ") takes what cannot be recomputed out of the budget.");
  }
  return text;
}

}  // namespace recoup
