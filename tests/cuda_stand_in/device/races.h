// Note [Races]
// For all bytes the last users are recorded, and whether the order of streams puts the next user
// after them. The order is known when work is enqueued, so results do not depend on when it runs.
// All host threads count as one: if one of them has waited for work, the work that any other thread
// enqueues is ordered after it.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "tests/cuda_stand_in/device/memory.h"
#include "tests/cuda_stand_in/device/vector_clock.h"

namespace recoup::stand_in {

// Bytes that a task uses.
struct Use {
  const void* memory = nullptr;
  std::size_t size = 0;
  bool write = false;
  const char* what = "";
};

// Not thread safe.
class Races {
 public:
  // Registers a use by the next task of a stream. `before`: the work that is known to be over by
  // then.
  void use(StreamId stream, const VectorClock& before, const Use& use);
  // The bytes return to the driver, which waits for nothing. `host`: the work that the host knows
  // to be over.
  void forget(const void* memory, std::size_t size, const VectorClock& host, const char* what);

  [[nodiscard]] int found() const { return found_; }

 private:
  struct User {
    StreamId stream = 0;  // 0: none
    Tick tick = 0;
    const char* what = "";
  };
  struct Part {
    Address end = 0;
    User writer;
    std::vector<User> readers;
  };

  [[nodiscard]] static bool ordered(const User& user, const VectorClock& before) {
    return user.stream == 0 || before.at(user.stream) >= user.tick;
  }
  void split(Address at);
  void report(const char* kind, const User& now, const User& other, Address at);

  std::map<Address, Part> parts_;  // by start address; disjoint
  int found_ = 0;
};

}  // namespace recoup::stand_in
