// Faults and disturbances that tests inject. A correct program survives each of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "recoup/api.h"

namespace recoup {

// Which faults and disturbances to inject. By default none.
struct TestAids {
  // Overwrites bytes as soon as they are evicted, moved away or freed, so that a late reader is
  // detected. Has no effect on a GPU, where queued work may still read them.
  bool poison = false;
  // Each allocation moves every movable value; an allocation outside of replays also evicts every
  // candidate.
  bool shake = false;
  // Each op that may overwrite an operand does so: Options::reuse_operands. Evicts the operand.
  bool in_place = false;
  // Each allocation of an op whose results may be paged is paged: Options::page_window.
  bool page = false;
  // Each of the next six selects an occurrence by its number, from 1; 0: none.
  std::int64_t fail_allocation = 0;  // the allocation that throws OutOfBudget
  std::int64_t fail_replay = 0;      // the replay that throws InjectedFault
  std::int64_t fail_spill = 0;       // the write to the spill tier that fails
  std::int64_t fail_fetch = 0;       // the read from the spill tier that fails
  std::int64_t fail_page = 0;        // the allocation of paged memory that fails
  std::int64_t force_eviction = 0;   // the allocation at which every candidate is evicted
  bool persistent = false;           // also inject the fault at every later occurrence
  // Longest random wait of a thread before it allocates, frees or leaves the scope, in
  // microseconds.
  std::int64_t delay = 0;

  // Whether anything but a delay is injected.
  [[nodiscard]] bool any() const {
    return poison || shake || in_place || page || fail_allocation > 0 || fail_replay > 0 ||
           fail_spill > 0 || fail_fetch > 0 || fail_page > 0 || force_eviction > 0;
  }
  // Whether a fault that is selected as number `at` occurs at number `count`.
  [[nodiscard]] bool strikes(std::int64_t at, std::int64_t count) const {
    return at > 0 && (count == at || (persistent && count > at));
  }
};

// Parses words that are separated by commas, in any order:
// "poison,shake,page,delay=50,fail-allocation=17,fail-replay=3,fail-spill=2,fail-fetch=4,
// fail-page=1,force-eviction=5,persistent".
// Throws std::invalid_argument for any other word.
RECOUP_API TestAids parse_test_aids(std::string_view text);

}  // namespace recoup
