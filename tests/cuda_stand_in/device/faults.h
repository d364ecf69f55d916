// Failures that a test asks for: of the n-th call of a function, and of calls from one place of
// recoup.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace recoup::stand_in {

// Thread safe. The environment may ask too: CUDA_STAND_IN_FAIL=cudaMalloc:3:2,cuMemCreate:1:2 are
// names of functions, numbers of calls from 1 and error codes.
class Faults {
 public:
  Faults();

  // The call of that number from now on returns the code and does nothing.
  void fail(const std::string& function, std::int64_t call, int code);
  // What was asked for is forgotten.
  void clear();
  // Counts a call; the code that it is to return, or 0.
  [[nodiscard]] int count(const char* function);
  [[nodiscard]] std::int64_t calls(const std::string& function);

 private:
  struct Counted {
    std::int64_t calls = 0;
    std::map<std::int64_t, int> codes;  // by the number of the call
  };

  std::mutex mutex_;
  std::map<std::string, Counted, std::less<>> functions_;
};

// Note [Call sites]
// A call site is the chain of return addresses within librecoup_torch.so, the innermost first. Each
// has a key, which is the same in every process that loads the same library.
// CUDA_STAND_IN_SITES=FILE appends a line for each site when it first calls: function, key, offsets
// in the library. CUDA_STAND_IN_DROP=KEY,KEY... makes calls of those sites do nothing.
class CallSites {
 public:
  CallSites();

  // Whether the call that is being made does nothing.
  [[nodiscard]] bool drops(const char* function);
  [[nodiscard]] std::int64_t dropped();

 private:
  [[nodiscard]] bool find_library();

  std::mutex mutex_;
  std::string file_;          // empty: sites are not written
  std::string drop_;          // empty: no calls are dropped
  std::uintptr_t begin_ = 0;  // of the library's code; 0: not loaded yet
  std::uintptr_t end_ = 0;
  std::map<std::string, bool> known_;  // by key: whether its calls are dropped
  std::int64_t dropped_ = 0;
};

}  // namespace recoup::stand_in
