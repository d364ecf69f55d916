#include "csrc/engine/state/exit_room.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace recoup::detail {
namespace {

class ExitRoom {
 public:
  explicit ExitRoom(const Context& context) : context_(context), lineage_(context.lineage) {}

  Bytes without_evictions() {
    Bytes all = context_.charges.kernel_held + context_.charges.external;
    Bytes room{0};
    std::int64_t blocks = context_.charges.kernel_blocks;
    std::vector<ValueId> wanted;
    lineage_.for_each_value([&](ValueId id, const Value& value) {
      if (value.external == nullptr && (is_live(value) || value.block.valid())) {
        all += value.size;
        ++blocks;
      }
      if (is_live(value) && !value.resident()) {
        wanted.push_back(id);
        room = std::max(room, value.spilled() ? value.size : Bytes(0));
      }
    });
    // Where a move costs more than an eviction, a dead value may be evicted, so its ancestors
    // count.
    const std::uint32_t mark = lineage_.next_mark();
    const auto count = [&](ValueId id) {
      const Value& value = lineage_[id];
      if (value.mark == mark || is_live(value)) {
        return;
      }
      value.mark = mark;
      if (value.external == nullptr && !value.block.valid()) {
        all += value.size;
        ++blocks;
      }
    };
    for (const OpId op : ancestors(wanted)) {
      lineage_.for_each_input(op, count);
      lineage_.for_each_output(op, count);
      room = std::max(room, room_of_kernel(lineage_[op]));
    }
    // In a pool of segments a free one exists if there are more segments than blocks.
    const Bytes segment = context_.pool.round_up(context_.options.block_size);
    const Bytes segments = context_.charges.external + Bytes(blocks * segment.count());
    return std::max(all, segments) + std::max(room, segment);
  }

  Bytes with_evictions() {
    Bytes all = context_.charges.kernel_held + context_.charges.external;
    Bytes room{0};
    std::vector<ValueId> wanted;
    lineage_.for_each_value([&](ValueId id, const Value& value) {
      const bool stays = value.block.valid() && !value.recomputable() && !value.spillable;
      all += value.external == nullptr && (is_live(value) || stays) ? value.size : Bytes(0);
      if (is_live(value) && !value.resident()) {
        wanted.push_back(id);
        room = std::max(room, Bytes(immovable() * value.size.count()));
      }
    });
    std::vector<OpId> ops = ancestors(wanted);
    std::sort(ops.begin(), ops.end(),
              [this](OpId a, OpId b) { return lineage_[a].sequence < lineage_[b].sequence; });
    for (const OpId op : ops) {
      const Bytes held = room_of(op);
      rooms_.emplace(op, held);
      room = std::max(room, held);
    }
    return all + room;
  }

 private:
  [[nodiscard]] static bool is_live(const Value& value) { return value.storage.valid(); }
  [[nodiscard]] Bytes size_if_dead(ValueId id) const {
    const Value& value = lineage_[id];
    return is_live(value) || value.external != nullptr ? Bytes(0) : value.size;
  }
  [[nodiscard]] std::int64_t immovable() const {
    return context_.charges.immovable_blocks + context_.charges.kernel_blocks;
  }

  // The ops that make the values again, if every dead value is evicted and no live one is.
  [[nodiscard]] std::vector<OpId> ancestors(const std::vector<ValueId>& values) const {
    std::vector<OpId> found;
    std::unordered_set<OpId> seen;
    const auto add = [&](ValueId id) {
      if (is_replayed(id) && seen.insert(lineage_[id].producer).second) {
        found.push_back(lineage_[id].producer);
      }
    };
    std::for_each(values.begin(), values.end(), add);
    for (std::size_t i = 0; i < found.size(); ++i) {
      lineage_.for_each_input(found[i], add);
    }
    return found;
  }
  // Whether the value may have to be replayed.
  [[nodiscard]] bool is_replayed(ValueId id) const {
    const Value& value = lineage_[id];
    return value.recomputable() && !(is_live(value) && value.resident());
  }

  // What a replay of the op takes in addition to the values that it reads and makes.
  [[nodiscard]] Bytes room_of_kernel(const Op& op) const {
    const Bytes workspace = context_.pool.round_up(op.workspace + op.forgotten);
    Bytes made = workspace;  // while the kernel runs, and its operands cannot move
    Bytes largest_made = workspace;
    for (const ValueId id : op.outputs) {
      const Bytes size = id.valid() ? lineage_[id].size : Bytes(0);
      made += size;
      largest_made = std::max(largest_made, size);
    }
    Bytes unrecorded{0};
    Bytes largest_written{0};
    for (const WrittenValue& written : op.written) {
      const Bytes size = context_.pool.round_up(written.nbytes);
      largest_written = std::max(largest_written, size);
      unrecorded += written.after.valid() ? Bytes(0) : size;
    }
    const auto writes = static_cast<std::int64_t>(op.written.size());
    const auto blocks = static_cast<std::int64_t>(op.inputs.size() + op.outputs.size()) + writes;
    // An op that writes no operand can run again, with its operands slid together. The memory of
    // written operands is allocated before the kernel runs.
    const Bytes between(blocks * largest_made.count());
    const Bytes gaps = std::max(writes == 0 ? std::min(made, between) : between,
                                Bytes(writes * largest_written.count()));
    const Bytes largest = std::max(largest_made, largest_written);
    return workspace + unrecorded + gaps + Bytes(immovable() * largest.count());
  }

  // The most that a replay of the op holds, b) above. Its inputs' ops have been visited.
  [[nodiscard]] Bytes room_of(OpId op) const {
    Bytes inputs{0};
    lineage_.for_each_input(op, [&](ValueId id) { inputs += size_if_dead(id); });
    Bytes most = inputs + room_of_kernel(lineage_[op]);
    lineage_.for_each_output(op, [&](ValueId id) { most += size_if_dead(id); });
    lineage_.for_each_input(op, [&](ValueId id) {
      if (is_replayed(id)) {
        most = std::max(most, inputs - size_if_dead(id) + rooms_.at(lineage_[id].producer));
      }
    });
    return most;
  }

  const Context& context_;
  const Lineage& lineage_;
  std::unordered_map<OpId, Bytes> rooms_;
};

}  // namespace

Bytes room_for_exit(const Context& context) {
  ExitRoom room(context);
  const Bytes without = room.without_evictions();
  return context.options.block_size > Bytes(0) ? without : std::min(without, room.with_evictions());
}

}  // namespace recoup::detail
