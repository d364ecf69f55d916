// What an engine has done so far. Counters never decrease; gauges say so. Names carry their units.
#pragma once

#include <cstdint>
#include <string>

#include "recoup/types.h"

namespace recoup {

struct Stats {
  std::int64_t budget_bytes = 0;    // gauge
  std::int64_t peak_bytes = 0;      // highest charged bytes, pool blocks and external tensors
  std::int64_t resident_bytes = 0;  // gauge: charged now
  std::int64_t external_bytes = 0;  // gauge: charged for tensors made outside the scope

  std::int64_t evictions = 0;  // chosen by the policy (or asked for by the user)
  std::int64_t evicted_bytes = 0;
  std::int64_t drops = 0;    // dead values freed without cost
  std::int64_t replays = 0;  // ops run again
  std::int64_t replay_ns = 0;
  std::int64_t replay_cost_ns = 0;  // the same by the recorded cost of their ops
  std::int64_t op_count = 0;        // ops run by the program
  std::int64_t op_ns = 0;  // what these cost (Options::cost_model), waiting for room excluded
  std::int64_t workspace_bytes = 0;  // gauge: the most that the last one held beside its results

  std::int64_t search_ns = 0;       // inside policies
  std::int64_t bookkeeping_ns = 0;  // making room, apart from search, moves and replays
  std::int64_t move_ns = 0;         // moving values within the pool
  std::int64_t allocator_ns = 0;    // finding free blocks; estimated from one allocation in 61
  std::int64_t plans = 0;
  std::int64_t candidates_visited = 0;
  std::int64_t candidates_scored = 0;
  std::int64_t candidates_filtered = 0;

  std::int64_t moves = 0;
  std::int64_t moved_bytes = 0;
  std::int64_t imports = 0;  // storages made outside that the spill tier, or the pool, took over
  std::int64_t imported_bytes = 0;
  std::int64_t spills = 0;  // values written to the spill tier
  std::int64_t spilled_bytes = 0;
  std::int64_t written_behind_bytes = 0;  // of them those that were written while ops ran
  std::int64_t clean_spills = 0;  // values given up that it had the same of: nothing was written
  std::int64_t fetches = 0;       // values read back from there
  std::int64_t fetched_bytes = 0;
  std::int64_t fetched_ahead_bytes = 0;  // of them those that were read while ops ran
  std::int64_t unread_copies = 0;        // that could not be read; what they held was replayed
  std::int64_t spill_ns = 0;             // waiting for writes
  std::int64_t fetch_ns = 0;             // waiting for reads
  std::int64_t spill_cost_ns = 0;        // what both cost the program, by their price
  std::int64_t spill_peak_bytes = 0;     // most that was there
  std::int64_t freezes = 0;              // writes that found evictable dependents
  std::int64_t frozen_values = 0;        // values that became leaves by them
  std::int64_t old_version_copies = 0;   // old versions kept as private copies instead
  std::int64_t escapes = 0;

  std::int64_t live_values = 0;  // gauge: records
  std::int64_t live_ops = 0;     // gauge
  std::int64_t lineage_depth_max = 0;
  std::int64_t metadata_bytes = 0;  // gauge: memory of the records
  std::int64_t metadata_peak_bytes = 0;
  std::int64_t replay_depth_max = 0;  // frames open at once
  std::int64_t replay_chain_max = 0;  // run again for one op of the program
  std::int64_t restarts = 0;  // replays that did not fit and began again with all else evicted
  std::int64_t allocations = 0;
  std::int64_t pressed_allocations = 0;  // those that something was evicted for
  std::int64_t pressed_free_bytes = 0;   // left free right behind them, summed: fragmentation
  std::int64_t made_room_bytes = 0;      // of allocations that found no room, and then had it made
  std::int64_t misfits = 0;     // allocations that found the bytes free, but not in one piece
  std::int64_t misfit_ppm = 0;  // of each: 1 - largest free block / free bytes, in millionths; sum
  std::int64_t foreseen_steps = 0;        // steps that repeat, for which evictions were planned
  std::int64_t eviction_lists = 0;        // of them those for which a list is better than none
  std::int64_t given_up_lists = 0;        // that were dearer than none
  std::int64_t listed_evictions = 0;      // of all evictions those that a list had named
  std::int64_t followed_steps = 0;        // that did all that a list was made for
  std::int64_t followed_expected_ns = 0;  // what their replays and moves were to cost
  std::int64_t followed_cost_ns = 0;      // and did cost
  std::int64_t planning_ns = 0;           // in which the program waited for plans
  std::int64_t verify_checks = 0;         // outputs hashed and compared
};

// What cannot be evicted, and why.
struct PinnedRow {
  Bytes size;
  std::string by;  // "non-recomputable value", "pin", "escape", "made outside the scope", ...
  std::string op;  // that made it; empty when it has no lineage
  MakerId maker{};
  NameId name{};
};

// How long the program waited for copies to and from the spill tier, for the sake of one op.
struct CopyWaitRow {
  std::string op;  // empty: between ops, as at the end of a scope
  std::int64_t spill_ns = 0;
  std::int64_t fetch_ns = 0;
};

}  // namespace recoup
