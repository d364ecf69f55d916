// LiveTimeline: the events of a run by wall-clock time: which value has bytes when, and what the
// engine does.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "csrc/engine/base/observer.h"
#include "csrc/engine/program/engine.h"
#include "recoup/attribution.h"

namespace recoup::detail {

// Note [Spans]
// Before and after each op of the program all values are inspected: a value that has bytes and had
// none at the last inspection begins a span; a value that has none any more ends its span. Many
// values come and go in between: in replays, by deaths, and by drops that no observer receives.
// So whenever the charge is noted and the open spans exceed it, all values are inspected again at
// the same instant: the spans never exceed the charge. A value that has bytes for less than the
// duration of an op may have no span; the charged bytes, which are noted at every allocation,
// include it.
class LiveTimeline final : public Observer {
 public:
  // Both must outlive this object. `all`: keep the moments of all steps, not only of the last one.
  LiveTimeline(const Engine& engine, const MakerTable& makers, bool all);

  // The last step that ended; if none has, the current step so far.
  [[nodiscard]] LiveStep step() const;
  // The current step until its last refused request; nullopt: no request was refused.
  [[nodiscard]] std::optional<LiveStep> refused_step() const;
  // The moments of all steps, in order.
  [[nodiscard]] std::vector<LiveMoment> moments() const {
    return {moments_.begin(), moments_.end()};
  }
  // Adds up the open spans; throws InternalError.
  void check() const;

  void on_allocate(BlockId block, Bytes nbytes) override;
  void on_external(StorageId storage, const OutsideStorage& outside) override;
  void on_death(StorageId storage) override;
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override;
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override;
  void on_op_failed(const KernelLimits& limits) override;
  void on_step(std::string_view name) override;
  void on_evict(ValueId value) override;
  void on_spill(ValueId value) override;
  void on_fetch(ValueId value) override;
  void on_move(ValueId value, PoolOffset to) override;
  void on_replay(std::string_view name, OpId id, const Op& op) override;
  void on_peak() override;
  void on_out_of_budget(const OutOfBudgetReport& report) override;

  // Limits per step. What exceeds them is not kept, and LiveStep::cut is set.
  static constexpr std::size_t kMostSpans = 400'000;
  static constexpr std::size_t kMostMoments = 1'000'000;

 private:
  // The span of a value that has bytes, by value id.
  struct Open {
    bool open = false;
    std::uint32_t round = 0;
    Span span;
  };
  [[nodiscard]] Nanoseconds now() const { return std::chrono::steady_clock::now() - start_; }
  [[nodiscard]] bool full() const;
  void add(LiveMoment::Kind kind, MakerId maker, Nanoseconds cost, Bytes size, Nanoseconds at);
  void note_charge(Nanoseconds at);
  void look_at_values(Nanoseconds at);
  void look_at(ValueId id, Nanoseconds at);
  void leave(ValueId id, Nanoseconds at);
  void close(Open& open, Nanoseconds at);
  void close_all(Nanoseconds at);
  [[nodiscard]] LiveStep finished(std::string_view name, Nanoseconds at) const;

  const Engine& engine_;
  const MakerTable& makers_;
  const bool all_;
  const std::chrono::steady_clock::time_point start_;
  std::vector<Open> open_;
  Bytes held_{0};  // total size of the open spans
  std::uint32_t round_ = 0;
  LiveStep current_;  // its end is where it was cut
  std::optional<LiveStep> last_;
  std::optional<Nanoseconds> refused_;  // right after the last refusal in this step
  std::deque<LiveMoment> moments_;
};

}  // namespace recoup::detail
