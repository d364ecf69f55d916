// Attributor: the data of a session on which modules hold memory and spend time.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>

#include "csrc/engine/reports/ledger.h"
#include "csrc/engine/reports/live_timeline.h"
#include "csrc/torch/session/makers.h"
#include "recoup/attribution.h"

namespace recoup::detail {

// All methods but `line` are called under the engine's lock.
class Attributor {
 public:
  // The engine must outlive this object, and must not attribute anything after its destruction.
  Attributor(Engine& engine, const AttributionOptions& options)
      : options_(options),
        ledger_(engine, table_),
        timeline_(options.step || options.moments
                      ? std::optional<LiveTimeline>(std::in_place, engine, table_, options.moments)
                      : std::nullopt) {
    engine.set_makers(&table_);
  }
  Attributor(const Attributor&) = delete;
  Attributor& operator=(const Attributor&) = delete;

  Makers& makers() { return makers_; }
  Ledger& ledger() { return ledger_; }
  // Null: it is not requested.
  LiveTimeline* timeline() { return timeline_ ? &*timeline_ : nullptr; }
  // The program's line on this thread. Call it with no lock held: it may wait for the
  // interpreter's.
  [[nodiscard]] std::uint32_t line() const {
    return options_.line == nullptr ? Maker::kNone : options_.line();
  }
  // Results of ops of the module are subject to the rule from now on.
  void add_rule(std::uint32_t module, StorageRule rule) { rules_.emplace(module, rule); }
  // Applies the rules of the maker's module to what it has made.
  void apply_rules(Engine& engine, MakerId maker, std::span<const StorageId> made) const {
    if (rules_.empty()) {
      return;
    }
    const auto [first, last] = rules_.equal_range(makers_.module_of(maker));
    for (auto rule = first; rule != last; ++rule) {
      for (const StorageId storage : made) {
        engine.user().set_rule(storage, rule->second);
      }
    }
  }
  // The results so far.
  [[nodiscard]] Attribution result() const {
    Attribution result;
    result.makers = makers_.all();
    result.work = ledger_.work();
    result.peak = ledger_.peak_bytes();
    result.holdings = ledger_.peak();
    result.refusal = ledger_.refusal();
    result.work.resize(result.makers.size());
    if (timeline_ && options_.step) {
      result.step = timeline_->step();
      if (result.refusal) {
        result.refusal->step = timeline_->refused_step();
      }
    }
    if (timeline_ && options_.moments) {
      result.moments = timeline_->moments();
    }
    return result;
  }
  void check() const {
    ledger_.check();
    if (timeline_) {
      timeline_->check();
    }
  }

 private:
  const AttributionOptions options_;
  Makers makers_;
  std::multimap<std::uint32_t, StorageRule> rules_;  // by module
  MakerTable table_;
  Ledger ledger_;
  std::optional<LiveTimeline> timeline_;
};

}  // namespace recoup::detail
