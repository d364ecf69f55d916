#include "csrc/engine/tier/flights.h"

#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/engine/base/device.h"
#include "csrc/engine/base/timer.h"

namespace recoup::detail {
namespace {

// What a copy beside ops takes from them, of its own time: with two busy cores products took 1.13
// to 1.16 times as long.
constexpr double kProcessorShare = 0.14;

}  // namespace

Flights::Flights(Context& context, Values& values)
    : context_(context), lineage_(context.lineage), values_(values), tier_(context.tier) {}

// Waits for the disk.
bool Flights::written(Bytes to) {
  const TestAids& aids = context_.options.aids;
  return context_.device.end_spill(to) && !aids.strikes(aids.fail_spill, ++spills_);
}

void Flights::end_fetch(Bytes from) {
  const TestAids& aids = context_.options.aids;
  context_.device.end_fetch(from);
  if (aids.strikes(aids.fail_fetch, ++fetches_)) {
    throw InjectedFault(str_cat("recoup: a test aid lets fetch ", fetches_, " fail"));
  }
}

// The others wait as long.
void Flights::wait_for(Nanoseconds cost) {
  advance();
  context_.stats.spill_cost_ns += cost.count();
  time_ += cost;
}

CopyWaitRow& Flights::waits_of_op() {
  const auto found = waits_.find(context_.running_op);
  if (found != waits_.end()) {
    return found->second;
  }
  std::string op(context_.running_op);
  return waits_.emplace(op, CopyWaitRow{.op = op}).first->second;
}

std::vector<CopyWaitRow> Flights::waits() const {
  std::vector<CopyWaitRow> rows;
  for (const auto& [op, row] : waits_) {
    rows.push_back(row);
  }
  return rows;
}

bool Flights::write(ValueId id, BlockId slot) {
  const Timer timer(context_.stats.spill_ns);
  const Timer of_op(waits_of_op().spill_ns);
  const Value& value = lineage_[id];
  wait_for(tier_.write_cost(value.size));
  context_.device.begin_spill(tier_.offset(slot), values_.location(id), value.nbytes);
  if (!written(tier_.offset(slot))) {
    close();
    return false;
  }
  ++context_.stats.spills;
  context_.stats.spilled_bytes += value.size.count();
  return true;
}

void Flights::read(ValueId id, BlockId block) {
  const Timer timer(context_.stats.fetch_ns);
  const Timer of_op(waits_of_op().fetch_ns);
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.spilled() && context_.pool.size(block) == value.size);
  wait_for(tier_.read_cost(value.size));
  const Bytes from = tier_.offset(value.slot);
  context_.device.begin_fetch(context_.pool.offset(block), from, value.nbytes);
  end_fetch(from);
  context_.charges.remove_kernel_block(value.size);
  make_resident(id, block);
}

void Flights::make_resident(ValueId id, BlockId block) {
  ++context_.stats.fetches;
  context_.stats.fetched_bytes += lineage_[id].size.count();
  if (context_.observer != nullptr) {
    context_.observer->on_fetch(id);
  }
  values_.transition(id, Residency::kResident, block);
  lineage_[id].last_access = context_.now;
  values_.count_dead_leaf(id);
}

void Flights::begin_write(ValueId id, BlockId slot) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.evictable() && !value.copying && !value.slot.valid());
  values_.hard_pin(id);
  ++value.fixed;
  value.slot = slot;
  begin({.value = id, .block = {}, .left = tier_.write_cost(value.size)});
  context_.device.begin_spill(tier_.offset(slot), values_.location(id), value.nbytes);
}

void Flights::begin_read(ValueId id, BlockId block) {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.spilled() && !value.copying && context_.pool.size(block) == value.size);
  values_.hard_pin(id);
  context_.charges.ahead += value.size;
  ++context_.charges.ahead_blocks;
  begin({.value = id, .block = block, .left = tier_.read_cost(value.size)});
  context_.device.begin_fetch(context_.pool.offset(block), tier_.offset(value.slot), value.nbytes);
}

void Flights::begin(const Flight& flight) {
  advance();
  lineage_[flight.value].copying = true;
  context_.stats.spill_cost_ns +=
      static_cast<std::int64_t>(kProcessorShare * static_cast<double>(flight.left.count()));
  writes_ += flight.block.valid() ? 0U : 1U;
  flights_.push_back(flight);
}

Bytes Flights::in_writing() const {
  Bytes sum{0};
  for (const Flight& flight : flights_) {
    sum += flight.block.valid() ? Bytes(0) : lineage_[flight.value].size;
  }
  return sum;
}

void Flights::advance() {
  const Nanoseconds now(context_.now + context_.stats.spill_cost_ns);
  Nanoseconds passed = now - time_;
  time_ = now;
  for (Flight& flight : flights_) {
    const Nanoseconds worked = std::min(passed, flight.left);
    flight.left -= worked;
    passed -= worked;
  }
}

void Flights::land_ended() {
  if (flights_.empty()) {
    return;
  }
  advance();
  while (!flights_.empty() && flights_.front().left == Nanoseconds(0)) {
    land_at(0);
  }
}

void Flights::land(ValueId id) {
  const auto found = std::find_if(flights_.begin(), flights_.end(),
                                  [id](const Flight& flight) { return flight.value == id; });
  if (found != flights_.end()) {
    advance();
    land_at(static_cast<std::size_t>(found - flights_.begin()));
  }
}

bool Flights::land_all() {
  const bool some = any();
  advance();
  while (any()) {
    land_at(0);
  }
  return some;
}

void Flights::land_at(std::size_t index) {
  const Flight flight = flights_[index];
  flights_.erase(flights_.begin() + static_cast<std::ptrdiff_t>(index));
  writes_ -= flight.block.valid() ? 0U : 1U;
  wait_for(flight.left);
  lineage_[flight.value].copying = false;
  if (flight.block.valid()) {
    end_read(flight.value, flight.block);
  } else {
    end_write(flight.value);
  }
}

void Flights::end_write(ValueId id) {
  const Timer timer(context_.stats.spill_ns);
  const Timer of_op(waits_of_op().spill_ns);
  Value& value = lineage_[id];
  if (written(tier_.offset(value.slot))) {
    ++context_.stats.spills;
    context_.stats.spilled_bytes += value.size.count();
    context_.stats.written_behind_bytes += value.size.count();
  } else {
    values_.drop_copy(id);
    close();
  }
  --lineage_[id].fixed;
  values_.hard_unpin(id);
}

// What cannot be read now is not read ahead: who needs it asks again, and gets the error.
void Flights::end_read(ValueId id, BlockId block) {
  const Timer timer(context_.stats.fetch_ns);
  const Timer of_op(waits_of_op().fetch_ns);
  const Bytes size = lineage_[id].size;
  context_.charges.ahead -= size;
  --context_.charges.ahead_blocks;
  try {
    end_fetch(tier_.offset(lineage_[id].slot));
    context_.stats.fetched_ahead_bytes += size.count();
    make_resident(id, block);
  } catch (const std::exception&) {
    values_.free_bytes(block);
  }
  values_.hard_unpin(id);
}

// A tier that fails once is not asked again.
void Flights::close() {
  tier_.close();
  std::vector<ValueId> all;
  lineage_.for_each_value([&](ValueId id, const Value&) { all.push_back(id); });
  for (ValueId id : all) {
    values_.set_spillable(id, lineage_[id].slot.valid());
  }
}

void Flights::check() const {
  Bytes ahead{0};
  int blocks = 0;
  for (const Flight& flight : flights_) {
    const Value& value = lineage_[flight.value];
    RECOUP_CHECK(value.copying && value.slot.valid() && value.hard_pins > 0);
    RECOUP_CHECK(flight.block.valid() == value.spilled());
    ahead += flight.block.valid() ? value.size : Bytes(0);
    blocks += static_cast<int>(flight.block.valid());
  }
  std::size_t copying = 0;
  lineage_.for_each_value([&](ValueId, const Value& value) { copying += value.copying ? 1U : 0U; });
  RECOUP_CHECK(copying == flights_.size());
  RECOUP_CHECK(writes_ + static_cast<std::size_t>(blocks) == flights_.size());
  RECOUP_CHECK(ahead == context_.charges.ahead && blocks == context_.charges.ahead_blocks);
}

}  // namespace recoup::detail
