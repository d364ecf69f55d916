// Every option of the engine, with its default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recoup/policy.h"
#include "recoup/test_aids.h"
#include "recoup/types.h"

namespace recoup {

// The order in which a replay restores the inputs of an op.
enum class ReplayOrder : std::uint8_t {
  kMemory,     // the input with the most expensive replay first; inputs that wait have soft pins
  kRecursive,  // DTR's order: inputs in argument order; inputs that wait have hard pins
};

// How the cost of an op is determined.
enum class CostModel : std::uint8_t {
  kMeasured,  // nanoseconds: the median of the last 8 measurements of this kind of op
  kBytes,     // one nanosecond per byte of inputs and outputs: the same in every run
};

// Where the pool places an allocation.
enum class Placement : std::uint8_t {
  kBestFit,  // in the smallest free block that is large enough
  // In that block: results of expensive ops at its low end, those of cheap ops at its high end.
  kTwoEnded,
};

// When policies with PolicyInfo::foresees plan the evictions of a step that repeats.
enum class Planning : std::uint8_t {
  kOff,         // never
  kWait,        // at the end of the step, while the program waits; decisions are reproducible
  kBackground,  // on a thread of its own, while the program runs
};

// How an in-place write is recorded.
enum class InPlace : std::uint8_t {
  kShare,  // the kernel writes in place; the old content can be recomputed (Coop, section 3.4)
  kCopy,   // the kernel writes to a copy, as in DTR and DTE
};

// Options of an engine. Sizes are in bytes.
struct Options {
  Bytes budget;                    // limit for all tensor memory of the device; > 0
  std::string policy = "planned";  // name of a policy, see policies()
  // Overrides of PolicyOptions. Unset: the policy's default (PolicyInfo::defaults).
  std::optional<bool> small_filter;
  std::optional<bool> sampling;                   // override, as small_filter
  std::optional<bool> kinetic = std::nullopt;     // override, as small_filter
  std::optional<bool> chain_cost = std::nullopt;  // override, as small_filter
  std::uint64_t seed = 1033096058;                // seed of all random choices
  OracleOptions oracle = {};                      // exponents of the policy "oracle"

  // Whether a dead value keeps its bytes as long as a replay may read them: an evicted value that
  // is needed can be reached from it through evicted values. Off: a value is dropped when it dies
  // (DTR's eager eviction).
  bool usefulness = true;
  // Whether a result that does not fit otherwise takes the block of an operand, whose value is
  // evicted for it. Only for ops for which that gives the same bits.
  bool reuse_operands = true;
  ReplayOrder replay_order = ReplayOrder::kMemory;  // see ReplayOrder
  // Limit for the replays that restore the arguments of one op, as a multiple of the cost of all
  // recorded ops. Beyond it OutOfBudget is thrown. 0: no limit.
  double max_replay_ratio = 10.0;
  // Limit for the cost of a run's ops and replays, as a multiple of the cost of its ops. Beyond it
  // the next op throws OutOfBudget. 0: no limit. Note [Slow runs] in slowdown.h.
  double max_slowdown = 20.0;

  Planning planning = Planning::kBackground;   // see Planning
  InPlace in_place = InPlace::kShare;          // see InPlace
  Placement placement = Placement::kTwoEnded;  // see Placement
  // Size of the pool's segments (MindSpore PyNative); 0: one segment for the whole budget.
  Bytes block_size{0};
  // Size of the pool's address range; 0: the budget. A simulation with a much larger range has no
  // fragmentation. In a live run the device must have these addresses.
  Bytes addresses{0};
  // Capacity of the spill tier; 0 disables it. The tier is a file, or for a GPU pinned memory of
  // the host.
  Bytes spill{0};
  // The tier allocates multiples of this size, which should be the block size of the disk. Smaller
  // values are not spilled.
  Bytes spill_unit{4096};
  // Directory of the tier's file; empty: the system's directory for temporary files.
  std::string spill_dir = {};
  // Resident bytes of paged memory, for results that do not fit; 0: no result is paged. For
  // budgets of the CPU, and simulations.
  Bytes page_window{0};
  // Time to write one byte to the tier, in nanoseconds. Unset: measured; 1.25 in simulations.
  std::optional<double> spill_write_ns_per_byte = std::nullopt;
  // Time to read one byte of the tier, in nanoseconds. Unset: measured; 1.25 in simulations.
  std::optional<double> spill_read_ns_per_byte = std::nullopt;
  // Fixed time per copy to or from the tier, in nanoseconds. Unset: measured; 100,000 in
  // simulations.
  std::optional<double> spill_request_ns = std::nullopt;
  // Whether a value that an op has used is compared with its copy in the tier before the copy is
  // reused: a kernel may write to arguments that its schema does not name. Off: each use
  // invalidates the copy.
  bool spill_compares = true;
  // Whether a temporary spill tier is opened if the exit of a scope does not fit and there is none.
  // Note [Exits through a file] in user_requests.h.
  bool spill_to_leave = false;
  // Part of the budget that memory from before the scope takes; the pool has the rest. For devices
  // on which memory is allocated in large units.
  Bytes outside{0};
  Bytes alignment{64};  // alignment of blocks, a power of two
  // Results up to this size are recorded as sources: evicting them would free less than their
  // lineage takes.
  Bytes small_result_bytes{1024};
  // Longest chain of ops that a replay may have to run. A result at the end of a longer chain
  // becomes a source.
  std::int32_t max_depth = 10000;

  CostModel cost_model = CostModel::kMeasured;  // see CostModel
  // Time to move one byte within the pool, in nanoseconds. Unset: 0.1, or a measured value if
  // `cost_model` is kMeasured and the device can measure it.
  std::optional<double> move_ns_per_byte = std::nullopt;
  bool evict_after_op = false;  // for tests: evict every candidate after every op
  bool check_replays = false;   // hash every output and compare each replay with the hash
  TestAids aids = {};           // faults and disturbances for tests
};

}  // namespace recoup
