#include "csrc/torch/overflow/overflow_window.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "csrc/paging/paged_memory.h"
#include "recoup/errors.h"

namespace recoup::detail {
namespace {

PagedUse use_of(const PagedMemory& memory) {
  const PagedMemory::Counters counters = memory.counters();
  return {.now = Bytes(counters.allocated_bytes),
          .most = Bytes(counters.most_bytes),
          .read = Bytes(counters.read_bytes),
          .written = Bytes(counters.written_bytes),
          .disk_time = Nanoseconds(counters.disk_ns)};
}

}  // namespace

OverflowWindow::OverflowWindow(const Options& options, Storages& storages, EngineMutex& mutex)
    : size_(options.page_window),
      directory_(options.spill_dir),
      aids_(options.aids),
      storages_(storages),
      mutex_(mutex) {}

void OverflowWindow::watch_forks() { PagedMemory::watch_forks(); }

Bytes OverflowWindow::in_use() {
  const PagedMemory* const paged = PagedMemory::of_process();
  const bool used = paged != nullptr && paged->counters().allocated_bytes > 0;
  return used ? paged->window() : Bytes(0);
}

PagedUse OverflowWindow::use() const {
  const EngineLock lock(mutex_);
  // A forked child has no paged memory, or other.
  if (memory_ == nullptr || memory_ != PagedMemory::of_process()) {
    return {};
  }
  PagedUse use = use_of(*memory_);
  use.read -= before_.read;
  use.written -= before_.written;
  use.disk_time -= before_.disk_time;
  return use;
}

void OverflowWindow::charge() {
  const EngineLock lock(mutex_);
  if (aids_.strikes(aids_.fail_page, ++count_)) {
    throw std::system_error(ENOSPC, std::generic_category(), "recoup: injected");
  }
  PagedMemory& paged = PagedMemory::in(directory_);
  const Bytes before = paged.window();
  paged.set_window(std::min(size_, before));  // before less is charged
  try {
    storages_.charge_window(size_);
  } catch (const OutOfBudget&) {
    paged.set_window(before);
    throw;
  }
  paged.set_window(size_);
  if (std::exchange(memory_, &paged) != &paged) {
    paged.reset_most();
    before_ = use_of(paged);
  }
}

void OverflowWindow::restore() {
  const EngineLock lock(mutex_);
  PagedMemory* const paged = PagedMemory::of_process();
  if (paged != nullptr && storages_.window() > Bytes(0)) {
    paged->set_window(storages_.window());
  }
}

}  // namespace recoup::detail
