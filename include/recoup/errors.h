// The three kinds of failure, never mixed:
//   the caller's error      std::invalid_argument, std::logic_error ("nested scope")
//   the world               OutOfBudget: the program needs more memory than it may have
//   our bug                 InternalError, thrown by RECOUP_CHECK (csrc/base/check.h)
#pragma once

#include <stdexcept>
#include <string>

#include "recoup/api.h"
#include "recoup/types.h"

namespace recoup {

// What an out-of-budget error knows. Every field is in bytes of the pool, alignment included.
struct RECOUP_API OutOfBudgetReport {
  std::string op;           // the op that asked, or what else did ("scope exit")
  Bytes asked;              // size of the allocation that failed
  Bytes budget;             //
  Bytes external;           // charged for what is outside of the pool
  Bytes non_recomputable;   // values in the pool that cannot be recomputed
  Bytes pinned;             // held by the running op, by pins or by escapes
  Bytes workspace;          // kernel-held blocks that are no tensor yet
  Bytes evictable;          // what eviction could still have freed
  Bytes largest_window;     // largest contiguous range that evicting and moving could empty
  Bytes least;              // live tensors that cannot be evicted, and what was asked for, where
                            // that is more than the budget; else 0: a least budget is not known
  Bytes likely;             // as `enough`, if no memory is lost to fragmentation
  Bytes enough;             // a budget in which all so far and this allocation pass: no promise
                            // for what comes after it; 0: there is none
  std::string reason;       // a sentence, when it is not plainly the bytes
  bool fragmented = false;  // the bytes were there, but not in one piece
  int immovable = 0;        // blocks of the pool that may not be moved
  bool leaving = false;     // the exit of a scope does not fit

  // The first sentence, without its full stop: what failed.
  [[nodiscard]] std::string headline() const;
  // The headline, a table of sizes, and what to do next.
  [[nodiscard]] std::string to_string() const;
};

class RECOUP_API OutOfBudget : public std::runtime_error {
 public:
  explicit OutOfBudget(OutOfBudgetReport report)
      : std::runtime_error(report.to_string()), report_(std::move(report)) {}
  [[nodiscard]] const OutOfBudgetReport& report() const { return report_; }

 private:
  OutOfBudgetReport report_;
};

// Verify mode found a replay whose bits differ from the first run. Names the op.
class RECOUP_API ReplayDiffers : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a test asked for with TestAids::fail_replay.
class RECOUP_API InjectedFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RECOUP_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace recoup
