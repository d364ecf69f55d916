#include "csrc/steps/prefetch/spill_forecast.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

std::uint64_t SpillForecast::begin_run() {
  const std::uint64_t number = runs_.empty() ? 1 : runs_.back().number + 1;
  if (runs_.size() == kMostRuns) {
    runs_.pop_front();
  }
  runs_.emplace_back().number = number;
  return number;
}

SpillForecast::Run* SpillForecast::find(std::uint64_t number) {
  const auto found = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const Run& run) { return run.number == number; });
  return found == runs_.end() ? nullptr : &*found;
}

void SpillForecast::add_op(std::span<const Operand> operands, std::span<const StorageId> fresh,
                           std::uint64_t expected) {
  ++ops_;
  const Run* const repeated = find(expected);
  std::uint32_t slot = 0;
  for (const StorageId storage : fresh) {
    add_result(storage, repeated, slot++);
  }
  const bool uses_count = !engine_.options().spill_compares;
  for (const Operand& operand : operands) {
    if (operand.storage.valid() && (operand.written || uses_count)) {
      add_result(operand.storage, repeated, slot++);
    }
  }
  Run& run = runs_.back();
  run.first.push_back(static_cast<std::uint32_t>(run.spilled.size()));
}

void SpillForecast::add_result(StorageId storage, const Run* expected, std::uint32_t slot) {
  Run& run = runs_.back();
  const ValueId value = engine_.current(storage);
  const auto result = static_cast<std::uint32_t>(run.spilled.size());
  makers_[value] = {.run = run.number, .result = result, .op = ops_};
  run.spilled.push_back(kNever);
  const std::size_t op = run.first.size() - 1;
  if (expected == nullptr || op + 1 >= expected->first.size()) {
    return;
  }
  const std::size_t same = std::size_t{expected->first[op]} + slot;
  if (same < expected->first[op + 1] && expected->spilled[same] != kNever) {
    due_.push({.op = ops_ + expected->spilled[same], .made = ops_, .value = value});
  }
}

void SpillForecast::on_spill(ValueId value) {
  const Maker& maker = makers_.get(value);
  if (Run* const run = find(maker.run)) {
    run->spilled[maker.result] = static_cast<std::uint32_t>(ops_ - maker.op);
  }
}

ValueId SpillForecast::next() {
  while (!due_.empty()) {
    const ValueId value = due_.top().value;
    due_.pop();
    const Lineage& lineage = engine_.context().lineage;
    if (!lineage.contains(value)) {
      continue;
    }
    if (lineage[value].writable()) {
      return value;
    }
  }
  return {};
}

}  // namespace recoup::detail
