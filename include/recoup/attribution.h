// Attribution: which op of the program each byte was held for, and each nanosecond was spent on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup {

// The part of a training step that an op runs in.
enum class Phase : std::uint8_t { kForward, kBackward, kOptimizer };

// An op as called at one place of the program.
struct Maker {
  // Value of `module` and `line` if none is known.
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::string op;                // name of the op
  std::uint32_t module = kNone;  // number given to enter_module; kNone outside of all modules
  std::uint32_t line = kNone;  // result of AttributionOptions::line; kNone if it was not requested
  Phase phase = Phase::kForward;  // phase in which the op was called
};

// Work that was done for one maker. All numbers are totals over the run.
struct MakerWork {
  std::int64_t ops = 0;            // number of ops of the program
  std::int64_t op_ns = 0;          // cost of these ops in nanoseconds
  std::int64_t replays = 0;        // number of replayed ops
  std::int64_t replay_ns = 0;      // recorded cost of these replays in nanoseconds
  std::int64_t evictions = 0;      // number of evictions of values that the maker made
  std::int64_t evicted_bytes = 0;  // bytes that these evictions freed
};

// Classes of charged bytes.
enum class HoldingKind : std::uint8_t {
  kValue,      // content of a storage, or of a dead value that a replay may read
  kSource,     // the same for a source, or for a value that an op without inputs made
  kWorkspace,  // blocks of kernels, attributed to the op that ran
  kAhead,      // blocks into which spilled values are being read
  kOutside,    // allocated before the scope began (Options::outside)
};

// Bytes that were charged at one moment.
struct Holding {
  HoldingKind kind = HoldingKind::kValue;  // class of the bytes
  Bytes size{0};                           // number of bytes
  MakerId maker{};                         // op that made them; invalid if unknown
  NameId name{};                           // name of the storage; invalid if it has none
  std::uint64_t birth = 0;  // serial number of the storage; 0 if the bytes belong to none
};

// A time span in which a value was resident. Times count from the beginning of the scope.
struct Span {
  Nanoseconds begin{0};  // start of the span
  Nanoseconds end{0};    // end of the span
  Bytes size{0};         // bytes of the value
  MakerId maker{};       // op that made the value; invalid if unknown
  NameId name{};         // name of the value's storage; invalid if it has none
  bool source = false;   // whether it is of HoldingKind::kSource
};

// An event of a live run. Times count from the beginning of the scope.
struct LiveMoment {
  // What can happen.
  enum class Kind : std::uint8_t { kOp, kReplay, kEvict, kSpill, kFetch, kMove, kStep };
  Kind kind = Kind::kOp;   // what happened
  Nanoseconds start{0};    // start time
  Nanoseconds cost{0};     // duration, or what the engine assumes it to be
  Bytes size{0};           // bytes that were evicted, spilled, fetched or moved; otherwise 0
  Bytes charged{0};        // bytes charged right after the event
  MakerId maker{};         // op that the event is attributed to; invalid if unknown
  std::uint32_t step = 0;  // number of the training step in which it happened
};

// A number of bytes that holds from `at` until the next entry.
struct BytesAt {
  Nanoseconds at{0};  // time since the beginning of the scope
  Bytes bytes{0};     // number of bytes
};

// What happened in the last training step that ended, or in the whole run if no step was marked.
// Times count from the beginning of the scope.
struct LiveStep {
  std::string name;          // name given to mark_step; empty if no step was marked
  std::uint32_t number = 0;  // number of the step, from 0
  Nanoseconds begin{0};      // start time
  Nanoseconds end{0};        // end time
  Bytes budget{0};           // budget in force at the end
  // Residency of the values. At each instant the spans together hold at most the charged bytes.
  std::vector<Span> spans;
  std::vector<BytesAt> charged;     // charged bytes over time
  std::vector<BytesAt> budgets;     // budget over time
  std::vector<LiveMoment> moments;  // events in order of time
  bool cut = false;  // the records reached a limit: `end` is where they stop, and the step went on
};

// An allocation that was refused because it did not fit in the budget.
struct Refusal {
  OutOfBudgetReport report;       // the error's report
  MakerId maker{};                // op that asked for the memory; invalid if none did
  Bytes charged{0};               // bytes charged at that moment
  std::vector<Holding> holdings;  // all of the charged bytes
  // The step up to the refusal, if AttributionOptions::step is set and it has not ended since.
  std::optional<LiveStep> step;
};

// Attribution of a run, see Budget::attribute.
struct Attribution {
  std::vector<Maker> makers;        // makers, by MakerId
  std::vector<MakerWork> work;      // work for each maker, by MakerId
  Bytes peak;                       // peak of the charged bytes
  std::vector<Holding> holdings;    // all of the charged bytes at the peak
  std::optional<Refusal> refusal;   // the last refused allocation, if there was one
  std::optional<LiveStep> step;     // the last step, if AttributionOptions::step is set
  std::vector<LiveMoment> moments;  // events of all steps, if AttributionOptions::moments is set
};

// Returns a number for the program's current source line on this thread; becomes Maker::line.
// recoup holds no lock of its own during the call.
using LineSource = std::uint32_t (*)();

// What Budget::attribute records in addition to memory and work by maker.
struct AttributionOptions {
  LineSource line = nullptr;  // source of line numbers; null to record none
  bool step = false;          // whether to record Attribution::step
  // Whether to record Attribution::moments; of long runs only the last million.
  bool moments = false;
};

}  // namespace recoup
