// What the signal handler of paged memory does: blocks become resident, and are evicted. No
// function here allocates memory, or needs much of the stack: other libraries give signals a stack
// of a few KiB.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "csrc/paging/handler_calls.h"
#include "csrc/paging/paged_memory.h"

namespace recoup::detail {

// How a fault reports that it was a write depends on the processor. So a block that is read gets
// the right to be written at its second fault, or at once if accesses to this tensor mostly write.
void PagedMemory::enter(Tensor& tensor, std::int64_t offset) {
  const Slot missed{.tensor = &tensor, .block = offset / block_};
  if (of(missed).state == kDirty) {
    return;  // another thread was faster
  }
  const bool writes = of(missed).state == kClean;
  ++counters_.misses;
  const Slots slots(found_.data(), predicted(tensor, offset));
  if (writes) {
    tensor.writes.written(static_cast<int>(slots.size()));
    std::for_each(slots.begin(), slots.end(),
                  [this](const Slot& slot) { of(slot).state = kDirty; });
    protect(slots, PROT_READ | PROT_WRITE);
  } else {
    make_resident(slots, tensor.writes.expected());
  }
}

// Finds the block of a miss and those of the accesses that are predicted after it, if they are in
// the same state, by ascending address.
std::size_t PagedMemory::predicted(Tensor& tensor, std::int64_t offset) {
  const auto state = of({&tensor, offset / block_}).state;
  const auto [stride, count] =
      patterns_.miss({.thread = gettid(), .tensor = tensor.offset, .writes = state == kClean},
                     offset, {.at_once = most_in_batch() - 1, .together = window_ / 8});
  std::size_t size = 0;
  for (std::int64_t at = offset, i = 0; i <= count && at >= 0 && at < tensor.size; ++i) {
    const Slot slot{.tensor = &tensor, .block = at / block_};
    if (of(slot).state == state && (size == 0 || found_[size - 1].block != slot.block)) {
      found_[size++] = slot;
    }
    at += stride;
  }
  if (stride < 0) {
    std::reverse(found_.data(), found_.data() + size);
  }
  return stride == block_ ? size : with_groups(size);
}

// Adds the blocks of a group to one of found_, if there were two misses in the group so recently
// that the window would hold all groups since then. A kernel that works on a part of a matrix needs
// whole groups, in an order of its own; one that reads columns returns to a group too late.
std::size_t PagedMemory::with_groups(std::size_t size) {
  const Slots misses(some_.data(), size);
  std::copy_n(found_.data(), size, some_.data());
  const auto most = static_cast<std::size_t>(most_in_batch());
  const auto recent = static_cast<std::uint32_t>(window_ / group_);
  std::size_t added = 0;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < size; ++i) {
    Tensor& tensor = *misses[i].tensor;
    const std::int64_t miss = misses[i].block;
    Group& group = tensor.groups[miss / group_];
    ++events_;
    const bool dense = group.before_last != 0 && events_ - group.before_last < recent;
    group.before_last = std::exchange(group.last, events_);
    const std::int64_t first = dense ? miss / group_ * group_ : miss;
    const std::int64_t end = dense ? std::min(first + group_, tensor.size / block_) : miss + 1;
    const auto state = tensor.blocks[miss].state;
    for (std::int64_t block = std::max(first, next); block < end; ++block) {
      // Every miss has a place.
      const std::size_t reserved = size - i - (block > miss ? 1 : 0);
      if (tensor.blocks[block].state == state && (block == miss || added + reserved < most)) {
        found_[added++] = {.tensor = &tensor, .block = block};
        next = block + 1;
      }
    }
  }
  return added;
}

// The most blocks of one batch: they do not evict each other, and fit in the copy buffer.
std::int64_t PagedMemory::most_in_batch() const {
  return std::clamp<std::int64_t>(std::min(window_ / 8, PageCopies::kBuffer / block_), 1,
                                  static_cast<std::int64_t>(PageCopies::kMostRuns));
}

// `writes`: whether the accesses are expected to write what they read.
void PagedMemory::make_resident(Slots slots, bool writes) {
  const auto count = static_cast<std::int64_t>(slots.size());
  if (resident_ + count > window_) {
    evict_oldest(resident_ + count - window_);
  }
  const auto on_disk = [this](const Slot& slot) { return of(slot).on_disk != 0; };
  // A block that was never written is written now, or soon.
  auto* const middle = std::copy_if(slots.begin(), slots.end(), some_.data(), on_disk);
  auto* const end = std::remove_copy_if(slots.begin(), slots.end(), middle, on_disk);
  const Slots read(some_.data(), middle);
  const Slots fresh(middle, end);
  read_in(read);
  for (const Slot& slot : slots) {
    of(slot).state = of(slot).on_disk != 0 && !writes ? kClean : kDirty;
    ring_[static_cast<std::size_t>((oldest_ + resident_++) % kMostBlocks)] = slot;
  }
  protect(read, writes ? PROT_READ | PROT_WRITE : PROT_READ);
  protect(fresh, PROT_READ | PROT_WRITE);
}

// At least this many, which are in the window. More are evicted at a time than is needed, so that
// copies to the disk are large, or run at the same time.
void PagedMemory::evict_oldest(std::int64_t least) {
  const std::int64_t most =
      std::min(resident_, std::max(std::min(most_in_batch(), window_ / 16), least));
  for (std::int64_t ended = 0; ended < most;) {
    std::size_t size = 0;
    for (; ended < most && static_cast<std::int64_t>(size) < most_in_batch(); ++ended) {
      const Slot& slot = ring_[static_cast<std::size_t>(oldest_)];
      oldest_ = (oldest_ + 1) % kMostBlocks;
      --resident_;
      if (slot.tensor != nullptr) {
        evicted_[size++] = slot;
      }
    }
    const auto is_before = [this](const Slot& one, const Slot& other) {
      return offset(one) < offset(other);
    };
    std::make_heap(evicted_.data(), evicted_.data() + size, is_before);
    std::sort_heap(evicted_.data(), evicted_.data() + size, is_before);
    const Slots slots(evicted_.data(), size);
    protect(slots, PROT_NONE);
    write_out({some_.data(),
               std::copy_if(slots.begin(), slots.end(), some_.data(),
                            [this](const Slot& slot) { return of(slot).state == kDirty; })});
    drop(slots);
    for (const Slot& slot : slots) {
      if (of(slot).state == kClean) {
        slot.tensor->writes.only_read();
      }
      of(slot).state = kAbsent;
    }
  }
}

// Calls call(first slot, number) for blocks that are next to each other.
template <class Call>
void PagedMemory::each_run(Slots slots, Call&& call) const {
  for (std::size_t first = 0; first < slots.size();) {
    std::size_t end = first + 1;
    while (end < slots.size() && slots[end].tensor == slots[first].tensor &&
           slots[end].block == slots[end - 1].block + 1) {
      ++end;
    }
    call(slots[first], static_cast<std::int64_t>(end - first));
    first = end;
  }
}

PageCopies::Runs PagedMemory::runs_of(Slots slots) {
  std::size_t count = 0;
  each_run(slots, [this, &count](const Slot& first, std::int64_t blocks) {
    runs_[count++] = {.offset = offset(first), .size = blocks * block_};
  });
  return {runs_.data(), count};
}

void PagedMemory::protect(Slots slots, int rights) const {
  each_run(slots, [this, rights](const Slot& first, std::int64_t blocks) {
    if (mprotect(first.tensor->address + first.block * block_,
                 static_cast<std::size_t>(blocks * block_), rights) != 0) {
      give_up("the system refuses to change the access rights of a block (vm.max_map_count)");
    }
  });
}

void PagedMemory::drop(Slots slots) const {
  each_run(slots, [this](const Slot& first, std::int64_t blocks) {
    if (fallocate(resident_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset(first),
                  blocks * block_) != 0) {
      give_up("the system refuses to take the memory of a block back");
    }
  });
}

void PagedMemory::write_out(Slots slots) {
  if (slots.empty()) {
    return;
  }
  const std::int64_t start = now_ns();
  const PageCopies::Runs runs = runs_of(slots);
  copies_.from_memory(runs);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Block& block = of(slots[i]);
    block.sum =
        page_sum(copies_.bytes() + static_cast<std::int64_t>(i) * block_, block_) & kPageSum;
    block.on_disk = 1;
  }
  copies_.to_disk(runs);
  counters_.written_bytes += static_cast<std::int64_t>(slots.size()) * block_;
  counters_.disk_ns += now_ns() - start;
}

void PagedMemory::read_in(Slots slots) {
  if (slots.empty()) {
    return;
  }
  const std::int64_t start = now_ns();
  const PageCopies::Runs runs = runs_of(slots);
  copies_.from_disk(runs);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (of(slots[i]).sum !=
        page_sum(copies_.bytes() + static_cast<std::int64_t>(i) * block_, block_)) {
      give_up("the disk of the spill tier returned other bits than were written");
    }
  }
  copies_.to_memory(runs);
  counters_.read_bytes += static_cast<std::int64_t>(slots.size()) * block_;
  counters_.disk_ns += now_ns() - start;
}

}  // namespace recoup::detail
