// AtEnd: calls a function at the end of its scope, also if an exception ends it.
#pragma once

#include <utility>

namespace recoup::detail {

// The function must not throw.
template <class Function>
class AtEnd {
 public:
  explicit AtEnd(Function function) : function_(std::move(function)) {}
  ~AtEnd() {
    if (!cancelled_) {
      function_();
    }
  }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

  // The function will not be called.
  void cancel() { cancelled_ = true; }

 private:
  Function function_;
  bool cancelled_ = false;
};

}  // namespace recoup::detail
