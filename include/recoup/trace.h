// Traces: a recorded run of a program. A trace holds the requests of the program to the engine in
// order, and none of the engine's decisions, except the plans of policy "planned". A simulation of
// the trace makes the decisions that a live run would make.
//
// Storages are numbered from 0 in the order in which they appear: external storages, adopted
// blocks, and results of ops. Blocks that are allocated outside of ops are numbered in the same
// way.
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

// How the device of the run allocates memory. The defaults are those of a CPU.
struct TraceDevice {
  Bytes alignment{64};   // alignment of the pool's blocks, a power of two
  Bytes unit{1};         // budgets are rounded down to a multiple of it
  Bytes outside{0};      // part of a budget that was in use before the run (Options::outside)
  Bytes window{0};       // window of the paged memory that earlier scopes left; 0: there is none
  bool bounces = false;  // whether a block is reserved for moves (Engine::reserve_bounce)
  bool compares = true;  // whether copies in a spill tier are compared (Options::spill_compares)
  friend bool operator==(const TraceDevice&, const TraceDevice&) = default;
};

// How an op uses one of its storages. Each storage appears once.
struct TraceOperand {
  std::uint32_t storage = 0;  // number of the storage
  bool reads = false;         // the op reads its bytes
  bool written = false;       // the op writes to it
  bool overwritten = false;   // the op replaces all of its bytes without reading them
  bool left_out = false;      // a side effect that a replay omits (BatchNorm's statistics)
  bool overwritable = false;  // a result of the same size may overwrite it while the kernel runs
  friend bool operator==(const TraceOperand&, const TraceOperand&) = default;
};

// An allocation or a free by a running kernel.
struct KernelStep {
  // What a kernel can do.
  enum class Kind : std::uint8_t {
    kAllocate,  // allocates `size` bytes; allocations of a kernel are numbered from 0
    kFree,      // frees allocation `index`
  };
  Kind kind = Kind::kAllocate;  // what the kernel does
  std::uint32_t index = 0;      // number of the allocation, for kFree
  Bytes size{0};                // bytes, for kAllocate
  friend bool operator==(const KernelStep&, const KernelStep&) = default;
};

// A storage that an op made.
struct TraceFresh {
  std::uint32_t allocation = 0;  // number of the kernel's allocation that holds it
  Bytes nbytes{0};               // bytes of the storage
  friend bool operator==(const TraceFresh&, const TraceFresh&) = default;
};

// An op of the program. Ranges refer to vectors of Trace.
struct TraceOp {
  std::uint32_t name = 0;           // index into Trace::names
  std::uint32_t kernel = 0;         // index into Trace::kernels
  std::uint32_t first_operand = 0;  // index into Trace::operands
  std::uint32_t operand_count = 0;  // number of operands
  std::uint32_t first_fresh = 0;    // index into Trace::fresh
  std::uint32_t fresh_count = 0;    // number of storages that it made
  Nanoseconds cost{0};              // cost
  Bytes workspace{0};               // peak bytes that the kernel held in addition to its results
  Bytes record_bytes{0};            // metadata that the runtime keeps to replay it
  // The number of copies of storages that the op writes as a side effect, kept in case its kernel
  // must start again. They are the first allocations of the kernel. A replay does not make them.
  std::uint32_t copies = 0;
  bool repeatable = true;     // may be replayed
  bool random = false;        // draws random numbers
  bool verifiable = true;     // all bytes of its results are defined
  bool failed = false;        // the kernel threw an exception
  bool may_overflow = false;  // what the kernel allocates may be paged (Options::page_window)
  bool once = false;          // the kernel must not run twice if it does not fit
  friend bool operator==(const TraceOp&, const TraceOp&) = default;
};

// A storage that a part of an op on lists uses.
struct TracePartOperand {
  std::uint32_t storage = 0;  // number of the storage
  bool written = false;       // the part writes to it
  friend bool operator==(const TracePartOperand&, const TracePartOperand&) = default;
};

// One part of an op on lists. Its storages are distinct.
struct TracePart {
  std::uint32_t first_operand = 0;  // index into Trace::part_operands
  std::uint32_t operand_count = 0;  // number of operands
  Bytes workspace{0};               // largest single allocation that its kernel may make, in bytes
  friend bool operator==(const TracePart&, const TracePart&) = default;
};

// An op on lists that may run as several parts in sequence, at the point where it begins.
struct TraceListOp {
  std::uint32_t name = 0;        // index into Trace::names
  std::uint32_t first_part = 0;  // index into Trace::parts
  std::uint32_t part_count = 0;  // number of parts
  friend bool operator==(const TraceListOp&, const TraceListOp&) = default;
};

// An entry of an eviction list. When `ops` ops of the step have ended, the engine evicts a result
// of op `op` of the step, or moves blocks if `op` is kMoves.
struct TraceEviction {
  // Value of `op`: blocks are moved.
  static constexpr std::uint32_t kMoves = 0xffffffff;
  // Value of `op`: the value is in the storage `slot`, which no op of this step or of its last run
  // made.
  static constexpr std::uint32_t kStorage = 0xfffffffe;
  // Is added to the number of an op of the step's last run.
  static constexpr std::uint32_t kLastRun = 1U << 30;
  std::uint32_t ops = 0;  // number of ops of the step that have ended
  std::uint32_t op = 0;   // number of the op in the step
  // Result of the op: its new storages in order, then the storages that it wrote.
  std::uint32_t slot = 0;
  bool spills = false;  // whether the value is spilled
  friend bool operator==(const TraceEviction&, const TraceEviction&) = default;
};

// The planned offset of a block that the step allocates.
struct TraceBlock {
  static constexpr std::uint32_t kNone = 0xffffffff;  // value of `op`: nothing is fetched
  std::uint32_t ops = 0;                              // number of ops of the step that have ended
  std::uint32_t evictions = 0;  // number of entries of the eviction list before it
  Bytes size{0};                // bytes, rounded up to the alignment
  PoolOffset at{0};             // offset in the pool
  PoolOffset other{0};          // offset if that range is not free; equal to `at`: there is none
  // The op, as in TraceEviction, of the value that is fetched into it ahead of its use.
  std::uint32_t op = kNone;
  std::uint32_t slot = 0;  // result of the op, as in TraceEviction
  friend bool operator==(const TraceBlock&, const TraceBlock&) = default;
};

// The planned offset of a block from before the step. What is in the block is 0 if unknown.
struct TraceStart {
  Bytes size{0};              // bytes, rounded up to the alignment
  std::uint32_t op = 0;       // number of the op of the step's last run that made it, from 1
  std::uint32_t slot = 0;     // which of the new storages of that op it is
  std::uint32_t storage = 0;  // number of a storage that no op of that run made, from 1
  PoolOffset at{0};           // offset in the pool
  PoolOffset other{0};        // another offset at which it may lie; equal to `at`: there is none
  friend bool operator==(const TraceStart&, const TraceStart&) = default;
};

// What a plan names, in the order of time.
struct TracePlanLists {
  std::span<const TraceEviction> evictions;  // the eviction list
  std::span<const TraceBlock> blocks;        // empty: addresses are not planned
  std::span<const TraceStart> starts;        // blocks from before the step
};

// A plan of policy "planned" for a step. It is in force from its place among the events.
struct TracePlan {
  std::uint64_t step = 0;   // hash of what the step does; 0: no plan yet, at the start of the run
  Bytes budget{0};          // budget that it was made for, in bytes
  Nanoseconds expected{0};  // planned cost of replays and moves
  bool listed = false;      // whether it has an eviction list; otherwise the policy alone decides
  std::uint32_t first_eviction = 0;  // index into Trace::evictions
  std::uint32_t eviction_count = 0;  // number of entries of the list
  std::uint32_t first_block = 0;     // index into Trace::blocks
  std::uint32_t block_count = 0;     // number of blocks with a planned offset
  std::uint32_t first_start = 0;     // index into Trace::starts
  std::uint32_t start_count = 0;     // number of blocks from before the step
  friend bool operator==(const TracePlan&, const TracePlan&) = default;
};

// A request of the program, in order of time.
struct TraceEvent {
  // What can happen.
  enum class Kind : std::uint8_t {
    // External storage of `size` bytes appears. `index`: 0 if its bytes are charged; 1 if they are
    // part of TraceDevice::outside, or on the CPU in paged memory; 2 + S if they also lie in
    // segment S.
    kExternal,
    // A block of `size` bytes is allocated outside of ops, if `index` is 0. Otherwise, right after
    // an op, its kernel goes on holding allocation `index` - 1. The kernel's steps then free it at
    // their end. A replay does not allocate it.
    kAllocate,
    kFree,       // block `index` is freed
    kAdopt,      // block `index` becomes a storage of `size` bytes
    kDie,        // storage `index` dies
    kOp,         // op `index` runs
    kEscape,     // storage `index` escapes
    kPin,        // storage `index` is pinned
    kUnpin,      // a pin of storage `index` is released
    kEvict,      // the user requests that storage `index` be evicted
    kDisown,     // external storage `index` is disowned: its content is no longer known
    kStep,       // a training step ends; `index`: its name in Trace::names
    kScopeExit,  // the scope exits: all live storages become resident
    // Storage `index` will be written by a part of an op on lists whose other parts are unknown.
    // Only in traces whose ops were reordered.
    kPart,
    kPartsEnd,  // the last op on lists ends; if none of its parts has run, it then runs as one op
    kLeave,     // storage `index`, which escaped, leaves the pool
    kTime,      // the step that ends with the next event took `index` microseconds of wall time
    // Segment `index` of another allocator appears, or changes. The allocator returns `size` bytes
    // when the external storages in it have been imported into the pool. Segments are numbered from
    // 0 in the order in which they appear.
    kSegment,
    kEscapeEnd,  // no code writes storage `index`, which escaped, any more
    kRule,       // storage `index` is subject to the StorageRule with the number `size`
    kPlan,   // plan `index` comes into force, for the policy and the budget that it was made for
    kParts,  // op on lists `index` begins
  };
  Kind kind = Kind::kOp;    // what happens
  std::uint32_t index = 0;  // number whose meaning depends on `kind`
  Bytes size{0};            // bytes, for the kinds that mention them
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// A recorded run. Numbers refer to these vectors.
struct Trace {
  TraceDevice device;              // device of the run
  std::vector<std::string> names;  // names of ops and steps, each once
  // The allocations and frees of each kernel.
  std::vector<std::vector<KernelStep>> kernels;
  std::vector<TraceOp> ops;                     // ops in the order in which they ended
  std::vector<TraceOperand> operands;           // operands of ops
  std::vector<TraceFresh> fresh;                // storages that ops made
  std::vector<TraceListOp> list_ops;            // ops on lists
  std::vector<TracePart> parts;                 // parts of ops on lists
  std::vector<TracePartOperand> part_operands;  // operands of parts
  std::vector<TracePlan> plans;                 // plans
  std::vector<TraceEviction> evictions;  // entries of eviction lists; in each list `ops` ascends
  std::vector<TraceBlock> blocks;        // blocks of plans; in each plan `ops` ascends
  std::vector<TraceStart> starts;        // blocks from before the steps of plans
  std::vector<TraceEvent> events;        // what happened, in order
  friend bool operator==(const Trace&, const Trace&) = default;

  // The operands of an op.
  [[nodiscard]] std::span<const TraceOperand> operands_of(const TraceOp& op) const {
    return std::span(operands).subspan(op.first_operand, op.operand_count);
  }
  // The storages that an op made.
  [[nodiscard]] std::span<const TraceFresh> fresh_of(const TraceOp& op) const {
    return std::span(fresh).subspan(op.first_fresh, op.fresh_count);
  }
  // The parts of an op on lists.
  [[nodiscard]] std::span<const TracePart> parts_of(const TraceListOp& op) const {
    return std::span(parts).subspan(op.first_part, op.part_count);
  }
  // The operands of a part.
  [[nodiscard]] std::span<const TracePartOperand> operands_of(const TracePart& part) const {
    return std::span(part_operands).subspan(part.first_operand, part.operand_count);
  }
  // The operands of all parts of the op.
  [[nodiscard]] std::span<const TracePartOperand> operands_of(const TraceListOp& op) const {
    const std::span<const TracePart> its = parts_of(op);
    return its.empty() ? std::span<const TracePartOperand>()
                       : std::span(part_operands)
                             .subspan(its.front().first_operand, its.back().first_operand +
                                                                     its.back().operand_count -
                                                                     its.front().first_operand);
  }
  // What the plan names.
  [[nodiscard]] TracePlanLists lists_of(const TracePlan& plan) const {
    return {.evictions = std::span(evictions).subspan(plan.first_eviction, plan.eviction_count),
            .blocks = std::span(blocks).subspan(plan.first_block, plan.block_count),
            .starts = std::span(starts).subspan(plan.first_start, plan.start_count)};
  }
};

// The file is not a complete trace. The text says where it is wrong.
class RECOUP_API BadTrace : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws BadTrace, which names the event or the op, if no engine can have recorded the trace. For
// example, an event refers to a storage that is not live, a size is negative or larger than any
// machine, or a kernel keeps a block that its op does not return.
RECOUP_API void validate(const Trace& trace);

// Writes a file in the format of docs/maintainers/trace-format.md. Throws std::system_error if the
// file cannot be written, and BadTrace for an invalid trace.
RECOUP_API void write_trace(const Trace& trace, const std::string& path);
// Reads such a file. Throws std::system_error if the file cannot be read, and BadTrace, with the
// offset of the error, if it is not a valid trace of a known version.
RECOUP_API Trace read_trace(const std::string& path);

}  // namespace recoup
