// Statistics of an engine. Fields are counters, which never decrease, or gauges, which are marked.
// Names end in their units.
#pragma once

#include <cstdint>
#include <string>

#include "recoup/types.h"

namespace recoup {

// Statistics of an engine since it was made.
struct Stats {
  std::int64_t budget_bytes = 0;    // gauge: budget in force
  std::int64_t peak_bytes = 0;      // peak of the charged bytes: pool blocks and external storages
  std::int64_t resident_bytes = 0;  // gauge: bytes charged now
  std::int64_t external_bytes = 0;  // gauge: bytes charged for external storages
  // Gauge: bytes of the pool that captured CUDA graphs use. They stay charged and resident.
  std::int64_t graph_bytes = 0;

  std::int64_t evictions = 0;      // evictions, chosen by the policy or requested by the user
  std::int64_t evicted_bytes = 0;  // bytes that evictions freed
  std::int64_t drops = 0;      // dead values whose bytes were freed because no replay needs them
  std::int64_t replays = 0;    // ops that were run again
  std::int64_t replay_ns = 0;  // measured time of replays
  std::int64_t replay_cost_ns = 0;  // recorded cost of the replayed ops
  std::int64_t op_count = 0;        // ops that the program ran
  // Cost of these ops (Options::cost_model), without time spent on making room.
  std::int64_t op_ns = 0;
  std::int64_t workspace_bytes = 0;  // gauge: peak workspace of the last op

  std::int64_t search_ns = 0;  // time spent in policies
  // Time spent on making room, without search, moves, replays and copies.
  std::int64_t bookkeeping_ns = 0;
  std::int64_t move_ns = 0;  // time spent on moving values within the pool
  // Time spent on finding free blocks, estimated from one allocation in 61.
  std::int64_t allocator_ns = 0;
  std::int64_t plans = 0;               // eviction plans that policies made
  std::int64_t candidates_visited = 0;  // candidates that policies looked at
  std::int64_t candidates_scored = 0;   // candidates whose score was computed

  std::int64_t moves = 0;              // moves of values within the pool
  std::int64_t moved_bytes = 0;        // bytes that were moved
  std::int64_t in_place_results = 0;   // results that took the block of an operand
  std::int64_t paged_allocations = 0;  // allocations of kernels in paged memory
  std::int64_t paged_bytes = 0;        // bytes of these allocations
  std::int64_t given_back_bytes = 0;   // bytes of pages that were given back to the system
  std::int64_t imports = 0;  // external storages that were moved into the pool or the spill tier
  std::int64_t imported_bytes = 0;        // bytes of these storages
  std::int64_t spills = 0;                // values written to the spill tier
  std::int64_t spilled_bytes = 0;         // bytes written to the spill tier
  std::int64_t written_behind_bytes = 0;  // part of spilled_bytes that was written while ops ran
  // Spilled values whose copy in the tier was still valid: nothing was written.
  std::int64_t clean_spills = 0;
  std::int64_t fetches = 0;              // values read back from the spill tier
  std::int64_t fetched_bytes = 0;        // bytes read back from the spill tier
  std::int64_t fetched_ahead_bytes = 0;  // part of fetched_bytes that was read while ops ran
  std::int64_t unread_copies = 0;       // copies that could not be read; their values were replayed
  std::int64_t spill_ns = 0;            // time spent waiting for writes
  std::int64_t fetch_ns = 0;            // time spent waiting for reads
  std::int64_t spill_cost_ns = 0;       // time that both cost the program, by the copies' price
  std::int64_t copy_time_ns = 0;        // price of all copies, also where ops ran meanwhile
  std::int64_t spill_peak_bytes = 0;    // peak of the bytes in the spill tier
  std::int64_t freezes = 0;             // writes to sources that had evictable dependents
  std::int64_t frozen_values = 0;       // values that became sources by these writes
  std::int64_t old_version_copies = 0;  // old versions that were kept as private copies instead
  std::int64_t escapes = 0;             // storages that escaped

  std::int64_t live_values = 0;          // gauge: recorded values
  std::int64_t live_ops = 0;             // gauge: recorded ops
  std::int64_t lineage_depth_max = 0;    // longest chain of ops that a replay may have to run
  std::int64_t metadata_bytes = 0;       // gauge: memory of the records
  std::int64_t metadata_peak_bytes = 0;  // peak of metadata_bytes
  std::int64_t replay_depth_max = 0;     // most replays that waited for one another at once
  std::int64_t replay_chain_max = 0;     // most replays for one op of the program
  // Replays that did not fit and were repeated after all other candidates were evicted.
  std::int64_t restarts = 0;
  std::int64_t allocations = 0;          // allocations from the pool
  std::int64_t pressed_allocations = 0;  // allocations for which at least one value was evicted
  // Sum of the free bytes right after these allocations: fragmentation.
  std::int64_t pressed_free_bytes = 0;
  std::int64_t made_room_bytes = 0;  // bytes of allocations for which room had to be made first
  std::int64_t misfits = 0;  // allocations that found enough free bytes, but not in one block
  // Sum over misfits of 1 - largest free block / free bytes, in millionths.
  std::int64_t misfit_ppm = 0;
  std::int64_t foreseen_steps = 0;  // repeated steps for which evictions were planned
  std::int64_t eviction_lists = 0;  // those of foreseen_steps that have an eviction list
  // Number of times that an eviction list was set aside because steps cost more with it.
  std::int64_t given_up_lists = 0;
  std::int64_t left_steps = 0;        // steps that began as a list says, and then ran other ops
  std::int64_t listed_evictions = 0;  // evictions that an eviction list named
  std::int64_t planned_blocks = 0;    // allocations at the offset that a plan named
  std::int64_t misplaced_blocks = 0;  // other allocations in steps with planned offsets
  std::int64_t followed_steps = 0;  // steps that did exactly what their eviction list was made for
  std::int64_t followed_expected_ns = 0;  // planned cost of the replays and moves of followed steps
  std::int64_t followed_cost_ns = 0;      // actual cost of these replays and moves
  std::int64_t planning_ns = 0;           // time that the program waited for plans
  std::int64_t replay_checks = 0;         // outputs that were hashed and compared
};

// A storage that cannot be evicted, and why.
struct PinnedRow {
  Bytes size;       // bytes of the storage
  std::string by;   // "non-recomputable", "pin", "escape", "made outside the scope", ...
  std::string op;   // the op that made it; empty if it has no lineage
  MakerId maker{};  // the same op with its module; invalid if unknown
  NameId name{};    // name of the storage; invalid if it has none
  std::string why;  // reason why it is non-recomputable; empty if there is none to state
  LineId line{};    // line of the program that took its address; invalid if unknown
};

// Time that the program waited for copies to and from the spill tier because of one op.
struct CopyWaitRow {
  std::string op;             // name of the op; empty between ops, such as at the exit of a scope
  std::int64_t spill_ns = 0;  // time spent waiting for writes
  std::int64_t fetch_ns = 0;  // time spent waiting for reads
};

}  // namespace recoup
