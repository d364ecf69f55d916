// Note [Races]
// Who used which bytes last, and whether the order of streams puts the next user after them. The
// order is known when work is given, so what is found does not depend on when it runs. All threads
// of the host count as one: what one of them has waited for, the work that another gives comes
// after.
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

// One thread at a time.
class Races {
 public:
  // The next task of a stream, of which `before` is what is over by then.
  void use(StreamId stream, const VectorClock& before, const Use& use);
  // The bytes go back to the driver, which waits for nothing; `host` is what the host has seen
  // done.
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

  std::map<Address, Part> parts_;  // by their begin; apart from each other
  int found_ = 0;
};

}  // namespace recoup::stand_in
