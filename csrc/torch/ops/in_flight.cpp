#include "csrc/torch/ops/in_flight.h"

#include <ATen/core/custom_class.h>

#include <algorithm>
#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace recoup::detail {
namespace {

bool is_completed(const Work& work) {
  try {
    return static_cast<c10d::Work*>(work.get())->isCompleted();
  } catch (const std::exception&) {
    return false;  // it is implemented in Python
  }
}

bool uses(const PendingCollective& collective, const PinTicket& storage) {
  return std::any_of(collective.pins.begin(), collective.pins.end(), [&](const PinTicket& pin) {
    return pin.storage == storage.storage && pin.birth == storage.birth;
  });
}

bool has(std::span<const WorkId> works, const PendingCollective& collective) {
  return std::find(works.begin(), works.end(), collective.work.get()) != works.end();
}

}  // namespace

void InFlight::add(PendingCollective collective) {
  pending_.push_back(std::move(collective));
  count_.store(static_cast<int>(pending_.size()), std::memory_order_relaxed);
}

std::vector<Work> InFlight::works() const {
  std::vector<Work> works;
  works.reserve(pending_.size());
  for (const PendingCollective& collective : pending_) {
    works.push_back(collective.work);
  }
  return works;
}

bool InFlight::used_by_others(const PinTicket& storage) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const PendingCollective& collective) {
    return collective.thread != std::this_thread::get_id() && uses(collective, storage);
  });
}

std::vector<WorkId> InFlight::waited_for(const PinTicket& storage) const {
  std::vector<WorkId> works;
  for (const PendingCollective& collective : pending_) {
    if (uses(collective, storage) && collective.work.use_count() > 1) {
      works.push_back(collective.work.get());
    }
  }
  return works;
}

template <class Wanted>
std::vector<PendingCollective> InFlight::take_if(Wanted&& wanted) {
  const auto taken = std::stable_partition(
      pending_.begin(), pending_.end(),
      [&](const PendingCollective& collective) { return !wanted(collective); });
  std::vector<PendingCollective> pending(std::make_move_iterator(taken),
                                         std::make_move_iterator(pending_.end()));
  pending_.erase(taken, pending_.end());
  count_.store(static_cast<int>(pending_.size()), std::memory_order_relaxed);
  return pending;
}

std::vector<PendingCollective> InFlight::take_dropped(std::span<const WorkId> works) {
  return take_if([&](const PendingCollective& collective) {
    return has(works, collective) && collective.work.use_count() == 1;
  });
}

std::vector<PendingCollective> InFlight::take(std::span<const WorkId> works) {
  return take_if([&](const PendingCollective& collective) { return has(works, collective); });
}

std::vector<PendingCollective> InFlight::take_all() {
  return take_if([](const PendingCollective&) { return true; });
}

void InFlight::leave_to_parent() {
  for (PendingCollective& collective : pending_) {
    (void)collective.work.release();
  }
  pending_.clear();
  count_.store(0, std::memory_order_relaxed);
}

Ended ended_among(std::span<const Work> works) {
  constexpr std::size_t kOurs = 2;
  Ended ended;
  for (const Work& work : works) {
    // The order matters: a work that finishes between the two queries has not been dropped.
    const bool ours_alone = work.use_count() == kOurs;
    if (is_completed(work)) {
      ended.finished.push_back(work.get());
    } else if (ours_alone) {
      ended.dropped.push_back(work.get());
    }
  }
  return ended;
}

Work work_among(Arguments results) {
  for (const c10::IValue& result : results) {
    if (result.isCustomClass()) {
      return result.toCustomClass<c10d::Work>();
    }
  }
  return {};
}

}  // namespace recoup::detail
