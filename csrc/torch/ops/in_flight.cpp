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
    return false;  // one that is written in Python
  }
}

bool uses(const Flight& flight, const PinTicket& storage) {
  return std::any_of(flight.pins.begin(), flight.pins.end(), [&](const PinTicket& pin) {
    return pin.storage == storage.storage && pin.birth == storage.birth;
  });
}

bool has(std::span<const WorkId> works, const Flight& flight) {
  return std::find(works.begin(), works.end(), flight.work.get()) != works.end();
}

}  // namespace

void InFlight::add(Flight flight) {
  flights_.push_back(std::move(flight));
  count_.store(static_cast<int>(flights_.size()), std::memory_order_relaxed);
}

std::vector<Work> InFlight::works() const {
  std::vector<Work> works;
  works.reserve(flights_.size());
  for (const Flight& flight : flights_) {
    works.push_back(flight.work);
  }
  return works;
}

bool InFlight::used_by_others(const PinTicket& storage) const {
  return std::any_of(flights_.begin(), flights_.end(), [&](const Flight& flight) {
    return flight.thread != std::this_thread::get_id() && uses(flight, storage);
  });
}

std::vector<WorkId> InFlight::waited_for(const PinTicket& storage) const {
  std::vector<WorkId> works;
  for (const Flight& flight : flights_) {
    if (uses(flight, storage) && flight.work.use_count() > 1) {
      works.push_back(flight.work.get());
    }
  }
  return works;
}

template <class Wanted>
std::vector<Flight> InFlight::take_if(Wanted&& wanted) {
  const auto taken = std::stable_partition(flights_.begin(), flights_.end(),
                                           [&](const Flight& flight) { return !wanted(flight); });
  std::vector<Flight> flights(std::make_move_iterator(taken),
                              std::make_move_iterator(flights_.end()));
  flights_.erase(taken, flights_.end());
  count_.store(static_cast<int>(flights_.size()), std::memory_order_relaxed);
  return flights;
}

std::vector<Flight> InFlight::take_dropped(std::span<const WorkId> works) {
  return take_if(
      [&](const Flight& flight) { return has(works, flight) && flight.work.use_count() == 1; });
}

std::vector<Flight> InFlight::take(std::span<const WorkId> works) {
  return take_if([&](const Flight& flight) { return has(works, flight); });
}

std::vector<Flight> InFlight::take_all() {
  return take_if([](const Flight&) { return true; });
}

void InFlight::leave_to_parent() {
  for (Flight& flight : flights_) {
    (void)flight.work.release();
  }
  flights_.clear();
  count_.store(0, std::memory_order_relaxed);
}

Ended ended_among(std::span<const Work> works) {
  constexpr std::size_t kOurs = 2;
  Ended ended;
  for (const Work& work : works) {
    // In this order: one that finishes between the two questions has not been dropped.
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
