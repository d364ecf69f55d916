// OverflowWindow: the resident part of a session's overflow memory, and its use.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/storages.h"
#include "recoup/options.h"
#include "recoup/paged.h"
#include "recoup/test_aids.h"

namespace recoup::detail {

class PagedMemory;

// Note [Paged results] in paging.h. Methods take the session's lock.
class OverflowWindow {
 public:
  // `options` are the engine's. The other arguments must outlive this object.
  OverflowWindow(const Options& options, Storages& storages, EngineMutex& mutex);
  // Once for the process, before the first scope.
  static void watch_forks();
  // The window of the process, if any overflow memory is allocated; 0: there is none.
  [[nodiscard]] static Bytes in_use();

  // Of the file of paged memory.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Before an allocation of paged memory: charges the window. Throws OutOfBudget, and
  // std::system_error or std::invalid_argument if there is no paged memory.
  void charge();
  // Another scope may have changed the window while this one was suspended.
  void restore();
  // Since the window was charged; zeros if it was not.
  [[nodiscard]] PagedUse use() const;

 private:
  const Bytes size_;
  const std::string directory_;
  const TestAids aids_;
  Storages& storages_;
  EngineMutex& mutex_;
  const PagedMemory* memory_ = nullptr;  // that of this process, if a result was paged
  std::int64_t count_ = 0;               // number of charges, also of failed ones
  PagedUse before_;                      // counts of the process before that
};

}  // namespace recoup::detail
