#include "csrc/engine/tier/async_copies.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/strings.h"
#include "csrc/engine/base/device.h"
#include "csrc/engine/base/tier_store.h"
#include "csrc/engine/base/timer.h"

namespace recoup::detail {

AsyncCopies::AsyncCopies(Context& context, Values& values)
    : context_(context), lineage_(context.lineage), values_(values), tier_(context.tier) {}

void AsyncCopies::start_write(ValueId id, BlockId slot) {
  const void* const from = context_.device.address(values_.location(id));
  context_.device.tier()->begin_write(tier_.offset(slot), from, lineage_[id].nbytes);
}

void AsyncCopies::start_read(ValueId id, BlockId block) {
  void* const to =
      context_.device.address({.external = nullptr, .offset = context_.pool.offset(block)});
  const Value& value = lineage_[id];
  context_.device.tier()->begin_read(to, tier_.offset(value.slot), value.nbytes);
}

// Waits for the write. False: it failed, or a test aid lets it fail.
bool AsyncCopies::written(BlockId slot) {
  const TestAids& aids = context_.aids;
  if (!context_.device.tier()->end_write(tier_.offset(slot))) {
    context_.device.on_tier_failure();
    return false;
  }
  return !aids.strikes(aids.fail_spill, ++spills_);
}

// Waits for the read.
void AsyncCopies::finish_read(ValueId id) {
  const TestAids& aids = context_.aids;
  context_.device.tier()->end_read(tier_.offset(lineage_[id].slot));
  if (aids.strikes(aids.fail_fetch, ++fetches_)) {
    throw InjectedFault(str_cat("recoup: a test aid made fetch ", fetches_, " fail"));
  }
}

// Copies under way make no progress during a synchronous copy.
void AsyncCopies::wait_for(Nanoseconds cost) {
  advance();
  context_.stats.spill_cost_ns += cost.count();
  time_ += cost;
}

void AsyncCopies::copy_now(Nanoseconds cost) {
  context_.stats.copy_time_ns += cost.count();
  wait_for(cost);
}

CopyWaitRow& AsyncCopies::waits_of_op() {
  const auto found = waits_.find(context_.running_op);
  if (found != waits_.end()) {
    return found->second;
  }
  std::string op(context_.running_op);
  return waits_.emplace(op, CopyWaitRow{.op = op}).first->second;
}

std::vector<CopyWaitRow> AsyncCopies::waits() const {
  std::vector<CopyWaitRow> rows;
  for (const auto& [op, row] : waits_) {
    rows.push_back(row);
  }
  return rows;
}

bool AsyncCopies::write(ValueId id, BlockId slot) {
  const Timer timer(context_.stats.spill_ns, &waits_of_op().spill_ns);
  const Value& value = lineage_[id];
  copy_now(tier_.write_cost(value.size));
  start_write(id, slot);
  if (!written(slot)) {
    close();
    return false;
  }
  ++context_.stats.spills;
  context_.stats.spilled_bytes += value.size.count();
  return true;
}

void AsyncCopies::read(ValueId id, Values::KernelBlock block) {
  const Timer timer(context_.stats.fetch_ns, &waits_of_op().fetch_ns);
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.spilled() && context_.pool.size(block.id()) == value.size);
  copy_now(tier_.read_cost(value.size));
  start_read(id, block.id());
  finish_read(id);
  make_resident(id, values_.take_over(std::move(block)));
}

void AsyncCopies::make_resident(ValueId id, BlockId block) {
  ++context_.stats.fetches;
  context_.stats.fetched_bytes += lineage_[id].size.count();
  if (context_.observer != nullptr) {
    context_.observer->on_fetch(id);
  }
  values_.transition(id, Residency::kResident, block);
  lineage_[id].last_access = context_.now;
  values_.count_dead_source(id);
}

void AsyncCopies::begin_write(ValueId id, Tier::Slot slot) {
  Value& value = lineage_[id];
  RECOUP_CHECK(value.evictable() && !value.copying && !value.slot.valid());
  Values::HardPin pin = values_.pin_hard(id);
  ++value.fixed;
  value.slot = slot.release();
  begin({.value = id, .block = {}, .left = tier_.write_cost(value.size), .pin = std::move(pin)});
  start_write(id, value.slot);
}

void AsyncCopies::begin_read(ValueId id, NewBlock block) {
  const Value& value = lineage_[id];
  RECOUP_CHECK(value.spilled() && !value.copying && context_.pool.size(block.id()) == value.size);
  Values::HardPin pin = values_.pin_hard(id);
  context_.charges.ahead += value.size;
  ++context_.charges.ahead_blocks;
  begin({.value = id,
         .block = block.id(),
         .left = tier_.read_cost(value.size),
         .pin = std::move(pin)});
  start_read(id, block.release());
}

void AsyncCopies::begin(Copy copy) {
  advance();
  lineage_[copy.value].copying = true;
  context_.stats.copy_time_ns += copy.left.count();
  context_.stats.spill_cost_ns +=
      static_cast<std::int64_t>(kProcessorFraction * static_cast<double>(copy.left.count()));
  writes_ += copy.block.valid() ? 0U : 1U;
  copies_.push_back(std::move(copy));
}

ValueId AsyncCopies::read_into(BlockId block) const {
  const auto found = std::find_if(copies_.begin(), copies_.end(),
                                  [&](const Copy& copy) { return copy.block == block; });
  return found == copies_.end() ? ValueId() : found->value;
}

bool AsyncCopies::holds(BlockId block) const {
  const ValueId owner = context_.pool.owner(block);
  return owner.valid() ? contains(owner) : read_into(block).valid();
}

bool AsyncCopies::any_dead() const {
  return std::ranges::any_of(
      copies_, [&](const Copy& copy) { return !lineage_[copy.value].storage.valid(); });
}

Bytes AsyncCopies::in_writing() const {
  Bytes sum{0};
  for (const Copy& copy : copies_) {
    sum += copy.block.valid() ? Bytes(0) : lineage_[copy.value].size;
  }
  return sum;
}

void AsyncCopies::advance() {
  const Nanoseconds now(context_.now + context_.stats.spill_cost_ns);
  Nanoseconds passed = now - time_;
  time_ = now;
  for (Copy& copy : copies_) {
    const Nanoseconds worked = std::min(passed, copy.left);
    copy.left -= worked;
    passed -= worked;
  }
}

void AsyncCopies::finish_ended() {
  if (copies_.empty()) {
    return;
  }
  advance();
  while (!copies_.empty() && copies_.front().left == Nanoseconds(0)) {
    finish_at(0);
  }
}

void AsyncCopies::wait(ValueId id) {
  const auto found = std::find_if(copies_.begin(), copies_.end(),
                                  [id](const Copy& copy) { return copy.value == id; });
  if (found != copies_.end()) {
    advance();
    finish_at(static_cast<std::size_t>(found - copies_.begin()));
  }
}

bool AsyncCopies::wait_for_all() {
  const bool some = any();
  advance();
  while (any()) {
    finish_at(0);
  }
  return some;
}

Nanoseconds AsyncCopies::time_left() {
  advance();
  Nanoseconds left{0};
  for (const Copy& copy : copies_) {
    left += copy.left;
  }
  return left;
}

void AsyncCopies::finish_at(std::size_t index) {
  const Copy copy = std::move(copies_[index]);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(index));
  writes_ -= copy.block.valid() ? 0U : 1U;
  wait_for(copy.left);
  lineage_[copy.value].copying = false;
  if (copy.block.valid()) {
    end_read(copy.value, copy.block);
  } else {
    end_write(copy.value);
  }
}

void AsyncCopies::end_write(ValueId id) {
  const Timer timer(context_.stats.spill_ns, &waits_of_op().spill_ns);
  Value& value = lineage_[id];
  if (written(value.slot)) {
    ++context_.stats.spills;
    context_.stats.spilled_bytes += value.size.count();
    context_.stats.written_behind_bytes += value.size.count();
  } else {
    values_.drop_copy(id);
    close();
  }
  --lineage_[id].fixed;
}

// A failed read is no error here: the value stays spilled, and the op that needs it reads it again
// and gets the error.
void AsyncCopies::end_read(ValueId id, BlockId block) {
  const Timer timer(context_.stats.fetch_ns, &waits_of_op().fetch_ns);
  const Bytes size = lineage_[id].size;
  context_.charges.ahead -= size;
  --context_.charges.ahead_blocks;
  try {
    finish_read(id);
    context_.stats.fetched_ahead_bytes += size.count();
    make_resident(id, block);
  } catch (const std::exception&) {
    values_.free_bytes(block);
  }
}

// After one failure the tier is not written any more.
void AsyncCopies::close() {
  tier_.close();
  std::vector<ValueId> all;
  lineage_.for_each_value([&](ValueId id, const Value&) { all.push_back(id); });
  for (ValueId id : all) {
    values_.set_spillable(id, lineage_[id].slot.valid());
  }
}

void AsyncCopies::check() const {
  Bytes ahead{0};
  int blocks = 0;
  for (const Copy& copy : copies_) {
    const Value& value = lineage_[copy.value];
    RECOUP_CHECK(value.copying && value.slot.valid() && value.hard_pins > 0);
    RECOUP_CHECK(copy.block.valid() == value.spilled());
    ahead += copy.block.valid() ? value.size : Bytes(0);
    blocks += static_cast<int>(copy.block.valid());
  }
  std::size_t copying = 0;
  lineage_.for_each_value([&](ValueId, const Value& value) { copying += value.copying ? 1U : 0U; });
  RECOUP_CHECK(copying == copies_.size());
  RECOUP_CHECK(writes_ + static_cast<std::size_t>(blocks) == copies_.size());
  RECOUP_CHECK(ahead == context_.charges.ahead && blocks == context_.charges.ahead_blocks);
}

}  // namespace recoup::detail
