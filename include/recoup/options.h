// Every switch of the engine, defaults first, so that an ablation is a loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "recoup/policy.h"
#include "recoup/test_aids.h"
#include "recoup/types.h"

namespace recoup {

enum class ReplayOrder : std::uint8_t {
  kMemory,     // inputs with the heaviest replay first, waiting inputs only softly pinned
  kRecursive,  // DTR's: inputs in argument order, every pending input pinned
};

enum class CostModel : std::uint8_t {
  kMeasured,  // nanoseconds: the median of the last 8 measurements of ops of its kind
  kBytes,     // bytes of inputs and outputs as nanoseconds: the same in every run
};

enum class Placement : std::uint8_t {
  kBestFit,   // the smallest free block that is large enough
  kTwoEnded,  // in it, results of expensive ops at the low end, of cheap ones at the high end
};

// Of a policy that foresees: when evictions are planned for a step that repeats.
enum class Planning : std::uint8_t {
  kOff,         // never
  kWait,        // where the step ends; the program waits, and decisions are the same in equal runs
  kBackground,  // beside the program
};

enum class InPlace : std::uint8_t {
  kShare,  // a write stays where it is; what was there can be recomputed (Coop, section 3.4)
  kCopy,   // a write goes to a copy of what it writes to: DTR's and DTE's
};

struct Options {
  Bytes budget;                    // of all tensor memory of the device, > 0
  std::string policy = "planned";  // a name of policies()
  // Unset: as the policy's paper has them, or what was measured to be better.
  std::optional<bool> small_filter;
  std::optional<bool> sampling;
  std::optional<bool> kinetic = std::nullopt;
  std::optional<bool> chain_cost = std::nullopt;
  std::uint64_t seed = 1033096058;
  OracleOptions oracle = {};

  // A dead value keeps its bytes only while an evicted value that somebody needs can be reached
  // from it through evicted values. Off: DTR's eager eviction, which drops a value when it dies.
  bool usefulness = true;
  ReplayOrder replay_order = ReplayOrder::kMemory;
  // Getting one op's arguments back may cost at most this many times the plain cost of all ops on
  // record; more is an OutOfBudget error. 0: no bound.
  double max_replay_ratio = 10.0;

  Planning planning = Planning::kBackground;
  InPlace in_place = InPlace::kShare;
  Placement placement = Placement::kTwoEnded;
  Bytes block_size{0};  // of the pool's segments (MindSpore PyNative); 0: one for the whole budget
  // Addresses of the pool; 0: as many as the budget. In a simulation with many more, free memory is
  // never in pieces. The device must have them.
  Bytes addresses{0};
  // Of a spill tier: so many bytes of values that are given up may be there. 0: none. A disk, or
  // for a GPU memory of the host.
  Bytes spill{0};
  // What is there takes multiples of it, and no value of less is; what a disk writes at once.
  Bytes spill_unit{4096};
  // A directory on the disk; empty: the system's for temporary files.
  std::string spill_dir = {};
  // What a byte takes to be written and read there. Unset: measured; in simulations 1.25.
  std::optional<double> spill_write_ns_per_byte = std::nullopt;
  std::optional<double> spill_read_ns_per_byte = std::nullopt;
  // What each copy takes beside its bytes. Unset: measured; in simulations 100,000.
  std::optional<double> spill_request_ns = std::nullopt;
  // Whether the device compares what an op has used with its copy there, before that stands for it:
  // a kernel may have written what it does not name. Off: a use ends the copy.
  bool spill_compares = true;
  // Without a spill tier: whether one is lent where the exit of a scope does not fit.
  // Note [Exits through a file] in user_requests.h.
  bool spill_to_leave = false;
  // Of the budget, what was there before the scope takes, whether the scope comes to see it or not;
  // the pool has the rest. For devices that give memory by the piece.
  Bytes outside{0};
  Bytes alignment{64};
  // Results up to this size are leaves: dropping them gains nothing and their lineage costs more.
  Bytes small_result_bytes{1024};
  // Longest chain of ops that a replay may have to run; a result beyond it becomes a
  // non-recomputable value.
  std::int32_t max_depth = 10000;

  CostModel cost_model = CostModel::kMeasured;
  // What a byte costs to move within the pool. Unset: 0.1, and where costs are measured what the
  // machine takes, if the device can tell.
  std::optional<double> move_ns_per_byte = std::nullopt;
  bool evict_after_op = false;  // test aid: evict everything evictable after every op
  bool verify = false;          // hash every output and compare every replay with it
  TestAids aids = {};
};

}  // namespace recoup
