// Records the events of a simulated run with their times and the charged bytes.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/engine/program/engine.h"
#include "recoup/offline/traces.h"

namespace recoup::detail {

class TimelineLog final : public Observer {
 public:
  explicit TimelineLog(const Trace& trace) {
    for (const std::string& name : trace.names) {
      names_.emplace(name, static_cast<std::uint32_t>(names_.size()));
    }
  }
  void look_at(const Engine& engine) { engine_ = &engine; }

  void on_step(std::string_view name) override {
    add(TimelineRow::Kind::kStep, names_.at(name), Nanoseconds(0));
  }
  void on_evict(ValueId /*value*/) override { add(TimelineRow::Kind::kEvict, 0, Nanoseconds(0)); }
  void on_replay(std::string_view name, OpId /*id*/, const Op& op) override {
    add(TimelineRow::Kind::kReplay, names_.at(name), op.cost);
  }
  void on_op_begin(std::string_view name, std::span<const Operand> /*operands*/) override {
    op_ = names_.at(name);
  }
  void on_op_end(const OpRecord& record, std::span<const Operand> /*operands*/,
                 std::span<const StorageId> /*fresh*/) override {
    add(TimelineRow::Kind::kOp, op_, record.cost);
  }
  [[nodiscard]] std::vector<TimelineRow> take() { return std::move(rows_); }

 private:
  void add(TimelineRow::Kind kind, std::uint32_t name, Nanoseconds cost) {
    rows_.push_back(
        {.kind = kind, .name = name, .start = clock_, .cost = cost, .charged = engine_->charged()});
    clock_ += cost;
  }

  std::unordered_map<std::string_view, std::uint32_t> names_;
  const Engine* engine_ = nullptr;
  std::uint32_t op_ = 0;
  Nanoseconds clock_{0};
  std::vector<TimelineRow> rows_;
};

}  // namespace recoup::detail
