// On whose behalf a run held memory and spent time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recoup/errors.h"
#include "recoup/types.h"

namespace recoup {

enum class Phase : std::uint8_t { kForward, kBackward, kOptimizer };

// An op as it is called at one place of the program.
struct Maker {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::string op;
  std::uint32_t module = kNone;  // as enter_module was told; none: outside of all
  std::uint32_t line = kNone;    // as LineSource says; none: not asked for
  Phase phase = Phase::kForward;
};

// What was done for one maker.
struct MakerWork {
  std::int64_t ops = 0;
  std::int64_t op_ns = 0;
  std::int64_t replays = 0;
  std::int64_t replay_ns = 0;  // by the costs of the ops
  std::int64_t evictions = 0;
  std::int64_t evicted_bytes = 0;
};

// What a part of the charged bytes is.
enum class HoldingKind : std::uint8_t {
  kValue,      // the content of a storage, or what something is replayed from
  kSource,     // the same, made by no op that is on record, or by one that read nothing
  kWorkspace,  // blocks of kernels, of the maker that ran
  kAhead,      // into them values of the spill tier are being read
  kOutside,    // was taken before the scope began
};

struct Holding {
  HoldingKind kind = HoldingKind::kValue;
  Bytes size{0};
  MakerId maker{};
  NameId name{};
  std::uint64_t birth = 0;  // of its storage; 0: it has none
};

// How long a value had its bytes.
struct Span {
  Nanoseconds begin{0};
  Nanoseconds end{0};
  Bytes size{0};
  MakerId maker{};
  NameId name{};
  bool source = false;  // as HoldingKind::kSource
};

// Something that happened; times count from the beginning of the scope.
struct LiveMoment {
  enum class Kind : std::uint8_t { kOp, kReplay, kEvict, kSpill, kFetch, kMove, kStep };
  Kind kind = Kind::kOp;
  Nanoseconds start{0};
  Nanoseconds cost{0};
  Bytes size{0};     // of what was evicted, spilled, fetched or moved
  Bytes charged{0};  // right after it
  MakerId maker{};
  std::uint32_t step = 0;  // its number
};

// From then on.
struct BytesAt {
  Nanoseconds at{0};
  Bytes bytes{0};
};

// The last training step that ended; of a program without any, all of it.
struct LiveStep {
  std::string name;  // empty: no step was marked
  std::uint32_t number = 0;
  Nanoseconds begin{0};
  Nanoseconds end{0};
  Bytes budget{0};  // in force at its end
  // At each instant the spans together have no more than what is charged, and that is no more than
  // the budget.
  std::vector<Span> spans;
  std::vector<BytesAt> charged;
  std::vector<BytesAt> budgets;
  std::vector<LiveMoment> moments;
  bool cut = false;  // it went on; its end is that of what is kept
};

// A request for memory that did not fit.
struct Refusal {
  OutOfBudgetReport report;
  MakerId maker{};                // of the op that asked; none: no op did
  Bytes charged{0};               // at that moment
  std::vector<Holding> holdings;  // what it was, in all
  std::optional<LiveStep> step;   // until then, if steps were asked for and it has not ended since
};

struct Attribution {
  std::vector<Maker> makers;       // by MakerId
  std::vector<MakerWork> work;     // the same
  Bytes peak;                      // the most that was charged
  std::vector<Holding> holdings;   // what it was, in all
  std::optional<Refusal> refusal;  // the last one
  std::optional<LiveStep> step;
  std::vector<LiveMoment> moments;  // of all steps, if they were asked for
};

// Where in the program this thread is, for Maker::line. Called with no lock of ours held.
using LineSource = std::uint32_t (*)();

struct AttributionOptions {
  LineSource line = nullptr;
  bool step = false;     // Attribution::step
  bool moments = false;  // Attribution::moments; of very long runs, the last ones
};

}  // namespace recoup
