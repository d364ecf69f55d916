// Note [By kind]
// Outputs of heavy ops are kept: they are the checkpoints. So are the outputs of ops that join two
// branches (the sums of a residual network), because recomputing one would recompute everything
// before it, and the last output of each long run of cheap ops. All other values are cheap: they
// are dropped after their last use in the forward pass.
//
//   mirror              a cheap value is restored when it is first needed, even if only to compute
//                       another one, and then kept (MXNet's mirrored nodes)
//   superneurons-speed  all cheap values between two checkpoints are restored together and kept
//   superneurons-memory a cheap value is restored for one op, and again for the next one
//
// A checkpoint from which only cheap values are computed would die when the program frees it. It is
// kept until the last of these values is restored.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/schedule/op_kinds.h"
#include "csrc/schedule/planners.h"

namespace recoup::detail {
namespace {

// Number of cheap ops in a row after which one is a checkpoint (MXNET_BACKWARD_MIRROR_STEP).
constexpr std::uint32_t kLongestRun = 100;

class KindSchedule {
 public:
  KindSchedule(ScheduleKind kind, const ScheduleInput& input, const Round& round)
      : kind_(kind),
        graph_(input.graph),
        names_(input.names),
        round_(round),
        roles_(graph_.values.size()) {}

  void plan(Schedule& schedule) {
    const std::vector<std::uint32_t> values = droppable(graph_, round_);
    for (const std::uint32_t id : values) {
      roles_[id].droppable = true;
    }
    for (const std::uint32_t id : values) {
      choose(id);
    }
    if (kind_ == ScheduleKind::kSuperneuronsSpeed) {
      find_segment_starts(values);
    }
    // Readers are visited before the values that they read.
    for (auto id = values.rbegin(); id != values.rend(); ++id) {
      find_needs(*id);
    }
    for (const std::uint32_t id : values) {
      write(id, schedule.kept[id]);
    }
  }

 private:
  struct Role {
    bool droppable = false;
    bool cheap = false;
    std::uint32_t run = 0;      // number of cheap values in a row up to this one
    std::uint32_t segment = 0;  // number of checkpoints before it
    // First backward op that needs it, including to recompute a cheap value.
    std::uint32_t first = GraphValue::kNone;
    std::uint32_t last = 0;  // last op that needs it, including to recompute a cheap value
  };

  [[nodiscard]] const GraphOp& producer(std::uint32_t id) const {
    return graph_.ops[graph_.values[id].producer];
  }

  void choose(std::uint32_t id) {
    Role& role = roles_[id];
    const GraphOp& op = producer(id);
    int branches = 0;
    for (const std::uint32_t input : op.inputs) {
      branches += roles_[input].droppable ? 1 : 0;
      role.run = std::max(role.run, roles_[input].cheap ? roles_[input].run + 1 : 1);
    }
    role.cheap = !is_compute_heavy(names_[op.name]) && branches < 2 && role.run <= kLongestRun &&
                 !over_checkpoint(id);
    role.segment = checkpoints_;
    checkpoints_ += role.cheap ? 0 : 1;
  }

  // It was written over a checkpoint, so recomputing it would recompute the checkpoint.
  [[nodiscard]] bool over_checkpoint(std::uint32_t id) const {
    const std::vector<std::uint32_t>& inputs = producer(id).inputs;
    return std::any_of(inputs.begin(), inputs.end(), [&](std::uint32_t input) {
      return graph_.values[input].storage == graph_.values[id].storage && roles_[input].droppable &&
             !roles_[input].cheap;
    });
  }

  void find_segment_starts(const std::vector<std::uint32_t>& values) {
    starts_.assign(checkpoints_ + std::size_t{1}, GraphValue::kNone);
    for (const std::uint32_t id : values) {
      if (roles_[id].cheap) {
        std::uint32_t& start = starts_[roles_[id].segment];
        start = std::min(start, use_in(round_, graph_.values[id]).first_backward);
      }
    }
  }

  void find_needs(std::uint32_t id) {
    Role& role = roles_[id];
    const GraphValue& value = graph_.values[id];
    role.first = use_in(round_, value).first_backward;
    for (const std::uint32_t reader : value.readers) {
      if (reader > round_.turn) {
        role.last = std::max(role.last, reader);
        continue;
      }
      for (const std::uint32_t output : graph_.ops[reader].outputs) {
        if (roles_[output].cheap) {
          role.first = std::min(role.first, roles_[output].first);
          role.last = std::max(role.last, comes_back(output));
        }
      }
    }
    if (role.cheap && kind_ == ScheduleKind::kSuperneuronsSpeed) {
      role.first = std::min(role.first, starts_[role.segment]);
    }
  }

  // The last op that restores a cheap value; 0 if there is none.
  [[nodiscard]] std::uint32_t comes_back(std::uint32_t id) const {
    const Role& role = roles_[id];
    if (kind_ == ScheduleKind::kSuperneuronsMemory) {
      return role.last;
    }
    return role.first == GraphValue::kNone ? 0 : role.first;
  }

  void write(std::uint32_t id, std::vector<Interval>& kept) const {
    const Role& role = roles_[id];
    const GraphValue& value = graph_.values[id];
    const RoundUse use = use_in(round_, value);
    const Interval forward{value.producer + 1, use.last_forward + 1};
    if (role.cheap) {
      kept.push_back(forward);
      if (kind_ != ScheduleKind::kSuperneuronsMemory && use.activation()) {
        add_interval(kept, {role.first, Interval::kOpen});
      }
    } else if (!use.activation() && role.last >= forward.to) {
      kept.push_back({forward.from, role.last + 1});
    }
  }

  ScheduleKind kind_;
  const TraceGraph& graph_;
  std::span<const std::string> names_;
  const Round& round_;
  std::vector<Role> roles_;            // by value
  std::uint32_t checkpoints_ = 0;      // number so far
  std::vector<std::uint32_t> starts_;  // by segment: the backward op that first needs a value of it
};

}  // namespace

void plan_by_kind(ScheduleKind kind, const ScheduleInput& input, const Round& round,
                  Schedule& schedule) {
  KindSchedule(kind, input, round).plan(schedule);
}

}  // namespace recoup::detail
