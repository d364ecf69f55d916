// Bypass: recoup's own allocations are not the program's memory.
#pragma once

namespace recoup::detail {

// During its lifetime, allocations of this thread do not use the pool.
class Bypass {
 public:
  Bypass() { ++depth(); }
  ~Bypass() { --depth(); }
  Bypass(const Bypass&) = delete;
  Bypass& operator=(const Bypass&) = delete;

  [[nodiscard]] static bool active() { return depth() > 0; }

 private:
  static int& depth() {
    thread_local int depth = 0;
    return depth;
  }
};

}  // namespace recoup::detail
