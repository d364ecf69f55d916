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
  text += row(str_cat("least ", budget_name, " that could be enough"), least);
  text += row(str_cat(budget_name, " that is most likely enough"),
              enough > Bytes(0) ? likely : Bytes(0));
  text += row(str_cat(budget_name, " that is enough"), enough);
  if (fragmented) {
    text += str_cat("Immovable blocks divide the free memory: ", immovable,
                    " are pinned, in use, or escaped to other code. ");
  }
  if (op.find("::_foreach_") != std::string::npos) {
    text +=
        "This op needs all tensors of its lists at once; an optimizer with fused=True or "
        "foreach=False needs only a part of them at a time. ";
  }
  if (enough == Bytes(0)) {
    return text + "No budget is enough: leave out block_size, or give a larger one.";
  }
  const std::string size = detail::short_size(enough);
  if (leaving) {
    return text + str_cat("Next: run.resume(\"", size,
                          "\"). It restores evicted tensors and completes the exit.");
  }
  if (shrinking) {
    return text + str_cat("Next: run.set_budget(\"", size,
                          "\"). This is enough for what cannot be evicted now.");
  }
  if (is_part) {
    const std::string total = detail::short_size(shared + enough - budget);
    return text + str_cat("Next: a shared budget of ", total,
                          " for all processes. This is enough for everything that ran so far and "
                          "for this allocation, if the other processes take no more than now.");
  }
  return text + str_cat("Next: recoup.budget(\"", size, "\"), or recoup run --budget ", size,
                        ". This is enough for everything that ran so far and for this allocation; "
                        "later ops may need more.");
}

}  // namespace recoup
