// The three kinds of failure, which are never mixed:
//   error of the caller       std::invalid_argument, std::logic_error ("nested scope")
//   not enough memory         OutOfBudget: the program needs more memory than the budget allows
//   error in recoup           InternalError, thrown by RECOUP_CHECK (csrc/base/check.h)
#pragma once

#include <stdexcept>
#include <string>

#include "recoup/api.h"
#include "recoup/types.h"

namespace recoup {

// Facts about an allocation that did not fit in the budget. Sizes include alignment.
struct RECOUP_API OutOfBudgetReport {
  std::string op;          // the op that asked for memory, or another activity
  Bytes asked;             // size of the refused allocation; 0 if none was refused, see `reason`
  Bytes budget;            // budget in force
  Bytes external;          // bytes charged for external storages
  Bytes non_recomputable;  // bytes of sources in the pool
  Bytes pinned;            // bytes held by the running op, by pins or by escapes
  Bytes workspace;         // bytes of blocks of kernels that belong to no tensor yet
  Bytes evictable;         // bytes that eviction could still have freed
  Bytes largest_window;    // largest contiguous range that evictions and moves could empty
  // Live tensors that cannot be evicted plus the refused allocation, if that exceeds the budget;
  // otherwise 0: no lower bound of the budget is known.
  Bytes least;
  // The budget to try next: more than `budget` and `least`, at most `enough`. 0: no budget helps.
  Bytes next;
  // The capacity of a spill tier to try next: room for what cannot be recomputed now. 0: it would
  // not help.
  Bytes next_spill;
  // A budget in which the run up to and including this allocation fits without evictions: an upper
  // bound of the least that works up to there. Later ops may need more. 0:
  // no budget helps. At the exit of a scope: a budget that completes the exit. In a change to a
  // smaller budget: one to which the budget can change.
  Bytes enough;
  Bytes shared;        // the budget that this process shares with others; 0: it does not
  std::string reason;  // a sentence, if the cause is other than a lack of bytes; otherwise empty
  bool fragmented = false;  // enough bytes were free, but not in one block
  int immovable = 0;        // number of immovable blocks in the pool
  bool leaving = false;     // the exit of a scope did not fit
  bool shrinking = false;   // the budget could not be made smaller
  bool tier_full = false;   // the spill tier lacks room for what cannot be recomputed

  // The first sentence, without its full stop: what failed.
  [[nodiscard]] std::string headline() const;
  // The headline, a table of sizes, and a suggestion what to do next.
  [[nodiscard]] std::string to_string() const;
  // What to do next: the last part of to_string.
  [[nodiscard]] std::string advice() const;
};

// The program needs more memory than the budget allows. Some interfaces translate it into another
// exception, see set_out_of_budget_thrower.
class RECOUP_API OutOfBudget : public std::runtime_error {
 public:
  // Makes the error; its text is that of the report.
  explicit OutOfBudget(OutOfBudgetReport report)
      : std::runtime_error(report.to_string()), report_(std::move(report)) {}
  // The facts of the failure; valid as long as the exception.
  [[nodiscard]] const OutOfBudgetReport& report() const { return report_; }

 private:
  OutOfBudgetReport report_;
};

// Verify mode found a replay whose bits differ from those of the first run. The text names the op.
class RECOUP_API ReplayDiffers : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown instead of a replay that TestAids::fail_replay selects.
class RECOUP_API InjectedFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An invariant of recoup does not hold: an error in recoup, not in the program.
class RECOUP_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace recoup
