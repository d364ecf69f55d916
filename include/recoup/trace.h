// A recorded run: what the program asked of the engine, in order, and nothing of what the engine
// decided. Simulating it under a policy and a budget makes the decisions that a live run would.
//
// Storages are numbered in the order in which they appear: tensors from outside, adopted blocks,
// and what each op made. So are the blocks that were allocated outside of any op.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "recoup/api.h"
#include "recoup/types.h"

namespace recoup {

// How the device of the run gives out memory. The defaults are those of a CPU.
struct TraceDevice {
  Bytes alignment{64};   // of blocks of the pool: a power of two
  Bytes unit{1};         // of budgets, which are rounded down to a multiple of it
  Bytes outside{0};      // part of a budget that was in use before the run: Options::outside
  bool bounces = false;  // whether a block is set aside for moves: Engine::reserve_bounce
  bool compares = true;  // whether copies in a spill tier are compared: Options::spill_compares
  friend bool operator==(const TraceDevice&, const TraceDevice&) = default;
};

// How an op uses one of its distinct storages.
struct TraceOperand {
  std::uint32_t storage = 0;
  bool reads = false;        // its bytes matter to the op
  bool written = false;      // the op writes to it
  bool overwritten = false;  // all of it, reading nothing
  bool left_out = false;     // in passing: a replay need not write it (BatchNorm's statistics)
  friend bool operator==(const TraceOperand&, const TraceOperand&) = default;
};

// What a kernel does to memory while it runs.
struct KernelStep {
  enum class Kind : std::uint8_t {
    kAllocate,  // `size` bytes; allocations of a kernel are numbered from 0
    kFree,      // its allocation `index`
  };
  Kind kind = Kind::kAllocate;
  std::uint32_t index = 0;
  Bytes size{0};
  friend bool operator==(const KernelStep&, const KernelStep&) = default;
};

// A storage that an op made: which allocation of its kernel, and its bytes.
struct TraceFresh {
  std::uint32_t allocation = 0;
  Bytes nbytes{0};
  friend bool operator==(const TraceFresh&, const TraceFresh&) = default;
};

struct TraceOp {
  std::uint32_t name = 0;    // into Trace::names
  std::uint32_t kernel = 0;  // into Trace::kernels
  std::uint32_t first_operand = 0;
  std::uint32_t operand_count = 0;
  std::uint32_t first_fresh = 0;
  std::uint32_t fresh_count = 0;
  Nanoseconds cost{0};
  Bytes workspace{0};     // most that the kernel held beside what it made
  Bytes record_bytes{0};  // that the runtime keeps to run it again
  // The number of copies of what the op writes in passing, kept in case its kernel has to start
  // again: the first allocations of the kernel. A replay does not make them.
  std::uint32_t copies = 0;
  bool repeatable = true;  // may be replayed
  bool random = false;     // draws random numbers
  bool verifiable = true;  // all bytes of its results are defined
  bool failed = false;     // the kernel threw
  friend bool operator==(const TraceOp&, const TraceOp&) = default;
};

// A storage that a part of an op on lists takes.
struct TracePartOperand {
  std::uint32_t storage = 0;
  bool written = false;
  friend bool operator==(const TracePartOperand&, const TracePartOperand&) = default;
};

// What one part of an op on lists takes: distinct storages, and what its kernel may allocate at
// most in one piece.
struct TracePart {
  std::uint32_t first_operand = 0;
  std::uint32_t operand_count = 0;
  Bytes workspace{0};
  friend bool operator==(const TracePart&, const TracePart&) = default;
};

// An op on lists that could run in parts, one after the other, where it begins.
struct TraceListOp {
  std::uint32_t name = 0;  // into Trace::names
  std::uint32_t first_part = 0;
  std::uint32_t part_count = 0;
  friend bool operator==(const TraceListOp&, const TraceListOp&) = default;
};

// Evicted while `ops` ops of the step have ended: what op `op` of the step made, by slot (its fresh
// storages in order, then what it wrote); or, for kMoves, blocks are moved.
struct TraceEviction {
  static constexpr std::uint32_t kMoves = 0xffffffff;
  std::uint32_t ops = 0;
  std::uint32_t op = 0;
  std::uint32_t slot = 0;
  friend bool operator==(const TraceEviction&, const TraceEviction&) = default;
};

// What the policy "planned" evicts in a step, from there on.
struct TracePlan {
  std::uint64_t step = 0;   // a hash of what the step does; 0: of none, where the run begins
  Bytes budget{0};          // that it was made for
  Nanoseconds expected{0};  // what replays and moves cost with it
  bool listed = false;      // else the policy decides alone
  std::uint32_t first_eviction = 0;
  std::uint32_t eviction_count = 0;
  friend bool operator==(const TracePlan&, const TracePlan&) = default;
};

struct TraceEvent {
  enum class Kind : std::uint8_t {
    kExternal,  // a storage that was made outside the pool, of `size` bytes; `index` is 1 when they
                // are among TraceDevice::outside, else 0
    kAllocate,  // a block of `size` bytes, outside of any op; or with an `index` above 0, right
                // after an op, allocation `index` - 1 of its kernel, which the kernel goes on
                // holding. Such a kernel seems to free it at its end. A replay does not allocate it
                // again.
    kFree,      // block `index`
    kAdopt,     // block `index` becomes a storage of `size` bytes
    kDie,       // storage `index` is let go
    kOp,        // op `index`
    kEscape,    // storage `index` can be seen from outside
    kPin,       // storage `index`
    kUnpin,     // storage `index`, as often as it was pinned
    kEvict,     // storage `index`: the user asks for it
    kDisown,    // external storage `index` has lost the bytes that were known
    kStep,      // a training step ends; `index` is its name
    kScopeExit,  // the scope is left: all that lives gets its bytes back
    kPart,       // storage `index` will be written by a part of an op on lists, whose other parts
                 // are not known: the trace is an old one, or its ops were put in another order
    kPartsEnd,   // of the last op on lists: its parts have run; if none has, it runs as a whole
    kLeave,      // storage `index`, which escaped, leaves the pool
    kTime,       // the step whose end follows took `index` microseconds, all that the program did
    kPlan,       // plan `index` is in force; with the policy and the budget that it was made for
    kParts,      // op on lists `index` begins
  };
  Kind kind = Kind::kOp;
  std::uint32_t index = 0;
  Bytes size{0};
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

struct Trace {
  TraceDevice device;
  std::vector<std::string> names;
  std::vector<std::vector<KernelStep>> kernels;
  std::vector<TraceOp> ops;
  std::vector<TraceOperand> operands;
  std::vector<TraceFresh> fresh;
  std::vector<TraceListOp> list_ops;
  std::vector<TracePart> parts;
  std::vector<TracePartOperand> part_operands;
  std::vector<TracePlan> plans;
  std::vector<TraceEviction> evictions;  // of plans, ascending by `ops` in each
  std::vector<TraceEvent> events;
  friend bool operator==(const Trace&, const Trace&) = default;

  [[nodiscard]] std::span<const TraceOperand> operands_of(const TraceOp& op) const {
    return std::span(operands).subspan(op.first_operand, op.operand_count);
  }
  [[nodiscard]] std::span<const TraceFresh> fresh_of(const TraceOp& op) const {
    return std::span(fresh).subspan(op.first_fresh, op.fresh_count);
  }
  [[nodiscard]] std::span<const TracePart> parts_of(const TraceListOp& op) const {
    return std::span(parts).subspan(op.first_part, op.part_count);
  }
  [[nodiscard]] std::span<const TracePartOperand> operands_of(const TracePart& part) const {
    return std::span(part_operands).subspan(part.first_operand, part.operand_count);
  }
  // Of all its parts.
  [[nodiscard]] std::span<const TracePartOperand> operands_of(const TraceListOp& op) const {
    const std::span<const TracePart> its = parts_of(op);
    return its.empty() ? std::span<const TracePartOperand>()
                       : std::span(part_operands)
                             .subspan(its.front().first_operand, its.back().first_operand +
                                                                     its.back().operand_count -
                                                                     its.front().first_operand);
  }
  [[nodiscard]] std::span<const TraceEviction> evictions_of(const TracePlan& plan) const {
    return std::span(evictions).subspan(plan.first_eviction, plan.eviction_count);
  }
};

// The file is not a trace, or not a whole one. Says where.
class RECOUP_API BadTrace : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws BadTrace, naming the event or the op, when no engine could have recorded this: an event
// refers to what is not there (not made yet, gone already, out of range), a size is negative or
// larger than a machine, a kernel keeps what its op does not return, ...
RECOUP_API void validate(const Trace& trace);

// Format: docs/trace-format.md. Throws std::system_error when the file cannot be written or read,
// and BadTrace, with the offset, when it is no whole trace of a known version.
RECOUP_API void write_trace(const Trace& trace, const std::string& path);
RECOUP_API Trace read_trace(const std::string& path);

}  // namespace recoup
