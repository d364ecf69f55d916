// Injected failures: of the n-th call of a function, and of calls from one call site in recoup.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace recoup::stand_in {

// Thread safe. The environment can request failures, too:
// CUDA_STAND_IN_FAIL=cudaMalloc:3:2,cuMemCreate:1:2 has names of functions, numbers of calls from 1
// and error codes.
class Faults {
 public:
  Faults();

  // Makes the `call`-th call from now on return `code` and do nothing.
  void fail(const std::string& function, std::int64_t call, int code);
  // Cancels all requested failures.
  void clear();
  // Counts a call. Returns the error code that it must return, or 0.
  [[nodiscard]] int count(const char* function);
  [[nodiscard]] std::int64_t calls(const std::string& function);
  // Returns one line per called function: a count and its name.
  [[nodiscard]] std::string report();

 private:
  struct Counted {
    std::int64_t calls = 0;
    std::map<std::int64_t, int> codes;  // by number of the call
  };

  std::mutex mutex_;
  std::map<std::string, Counted, std::less<>> functions_;
};

// Note [Call sites]
// A call site is the chain of return addresses within librecoup_torch.so, the innermost first. Its
// key is the same in every process that loads the same library. CUDA_STAND_IN_SITES=FILE appends a
// line for each site at its first call: function, key, offsets in the library.
// CUDA_STAND_IN_DROP=KEY,KEY... makes calls from those sites do nothing.
class CallSites {
 public:
  CallSites();

  // Whether the current call must do nothing.
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
