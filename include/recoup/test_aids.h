// Disturbances and faults that tests switch on, each of which a right program survives.
#pragma once

#include <cstdint>
#include <string_view>

#include "recoup/api.h"

namespace recoup {

struct TestAids {
  // Bytes that are given up (evicted, moved away or freed) are overwritten at once, so that whoever
  // still reads them is found out. Not on a GPU, where work that waits in a stream may read them.
  bool poison = false;
  // Each allocation moves everything that may move; one of the program's own also evicts everything
  // that may go.
  bool shake = false;
  // Each of these is a count, from 1 on, of what Stats counts; 0: none.
  std::int64_t fail_allocation = 0;  // this allocation raises OutOfBudget
  std::int64_t fail_replay = 0;      // this replay raises InjectedFault
  std::int64_t fail_spill = 0;       // this copy to the spill tier cannot be written
  std::int64_t fail_fetch = 0;       // this copy from there cannot be read
  std::int64_t force_eviction = 0;   // at this allocation everything evictable is evicted
  bool persistent = false;           // and at every one after it
  // Threads wait up to so many microseconds, at random, before they allocate, free and leave.
  std::int64_t delay = 0;

  [[nodiscard]] bool any() const {
    return poison || shake || fail_allocation > 0 || fail_replay > 0 || fail_spill > 0 ||
           fail_fetch > 0 || force_eviction > 0;
  }
  // Whether what is to be at count `at` is to be now.
  [[nodiscard]] bool strikes(std::int64_t at, std::int64_t count) const {
    return at > 0 && (count == at || (persistent && count > at));
  }
};

// The words of
// "poison,shake,delay=50,fail-allocation=17,fail-replay=3,fail-spill=2,fail-fetch=4,
// force-eviction=5,persistent", in any order. Throws std::invalid_argument for any other.
RECOUP_API TestAids parse_test_aids(std::string_view text);

}  // namespace recoup
