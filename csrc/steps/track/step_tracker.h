// StepTracker: the ops of the running step so far, as far as it can be compared with known steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/engine/base/observers.h"
#include "csrc/steps/track/step_log.h"

namespace recoup::detail {

// A step is given up, and not compared with others, in two cases: its ops overlap on several
// threads, or more than kMostOps ops have run without the end of a step. Events are passed on to
// the observers of the list first.
class StepTracker : public Observers {
 public:
  // `sizes`: whether steps with storages of other sizes differ. The engine must outlive it.
  explicit StepTracker(const Engine& engine, StepLog::Sizes sizes = StepLog::Sizes::kCount)
      : log_(engine, sizes) {}

  // ---- events of Observer ----
  void on_op_begin(std::string_view name, std::span<const Operand> operands) override {
    Observers::on_op_begin(name, operands);
    ++open_ops_;
  }
  void on_no_op() override {
    Observers::on_no_op();
    no_op();
  }
  void on_op_failed(const KernelLimits& limits) override {
    Observers::on_op_failed(limits);
    --open_ops_;
    no_op();
  }
  // If in_op() is true afterwards, the op is one of the step, and end_op adds it.
  void on_op_end(const OpRecord& record, std::span<const Operand> operands,
                 std::span<const StorageId> fresh) override {
    Observers::on_op_end(record, operands, fresh);
    --open_ops_;
  }
  void on_external(StorageId storage, const OutsideStorage& outside) override {
    Observers::on_external(storage, outside);
    log_.add_storage(storage);
  }
  void on_adopt(const FreshStorage& fresh, StorageId storage) override {
    Observers::on_adopt(fresh, storage);
    log_.add_storage(storage);
  }

 protected:
  // The next op begins a step.
  void track_step() {
    log_.begin_step();
    hashes_.clear();
    running_.reset();
    given_up_ = overlaps();
  }
  // Whether the step has no ops yet. A mark that ends it is ignored: a program that marks its steps
  // may do so right after the optimizer's step, which is a mark already.
  [[nodiscard]] bool is_empty() const { return !given_up_ && !running_ && log_.op_count() == 0; }
  void give_up() { given_up_ = true; }
  [[nodiscard]] bool given_up() const { return given_up_; }
  // Whether the step can have the op that is about to begin. If not, it must be given up.
  [[nodiscard]] bool can_go_on() const { return !running_ && log_.op_count() < kMostOps; }
  // An op is about to begin. Returns the hash of all ops so far and of that op.
  StepHash begin_op(std::string_view name, std::span<const Operand> operands) {
    running_ = log_.with(name, operands);
    return *running_;
  }
  // The op did not begin.
  void no_op() { running_.reset(); }

  [[nodiscard]] bool in_op() const { return running_.has_value(); }
  void end_op(const OpRecord& record, std::span<const Operand> operands,
              std::span<const StorageId> fresh) {
    hashes_.push_back(*running_);
    log_.add_op(*std::exchange(running_, std::nullopt), record, operands, fresh);
  }

  // Whether ops are running.
  [[nodiscard]] bool overlaps() const { return open_ops_ > 0; }
  // Whether the op that has begun, and all ops before it, are those of a step with these hashes.
  [[nodiscard]] bool agrees(std::span<const StepHash> known) const {
    const std::uint32_t op = log_.op_count();
    return running_ && op < known.size() && known[op] == *running_;
  }
  [[nodiscard]] const StepLog& log() const { return log_; }
  // By op: the hash of all ops up to that one.
  [[nodiscard]] std::span<const StepHash> hashes() const { return hashes_; }
  [[nodiscard]] std::vector<StepHash> take_hashes() { return std::exchange(hashes_, {}); }

 private:
  static constexpr std::uint32_t kMostOps = 1U << 16;

  StepLog log_;
  std::vector<StepHash> hashes_;
  std::optional<StepHash> running_;  // hash of all ops up to the running one
  int open_ops_ = 0;                 // number of running ops on all threads
  bool given_up_ = false;
};

}  // namespace recoup::detail
