// PageWindow: the resident part of a session's paged memory, and its use.
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
class PageWindow {
 public:
  // `options` are the engine's. The other arguments must outlive this object. `session`: for the
  // errors.
  PageWindow(const Options& options, Storages& storages, EngineMutex& mutex, const void* session);

  // Of the file of paged memory.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Before an allocation of paged memory: charges the window. Throws PoolOutOfMemory, and
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
  const void* const session_;
  const PagedMemory* memory_ = nullptr;  // that of this process, if a result was paged
  std::int64_t count_ = 0;               // number of charges, also of failed ones
  PagedUse before_;                      // counts of the process before that
};

}  // namespace recoup::detail
