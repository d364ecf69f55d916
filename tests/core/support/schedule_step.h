// Steps for planners of schedules, op by op.
#pragma once

#include <vector>

#include "csrc/schedule/planners.h"

namespace recoup::detail {

using Intervals = std::vector<Interval>;
inline constexpr std::uint32_t kOpen = Interval::kOpen;

// One step. The names of its ops are "cheap" (0) and "aten::mm" (1).
class Step {
 public:
  // Returns the storage that the op makes.
  std::uint32_t op(const std::vector<std::uint32_t>& inputs, std::int64_t size, bool heavy = false,
                   std::int64_t cost = 10) {
    std::vector<TraceOperand> operands;
    for (const std::uint32_t input : inputs) {
      operands.push_back({.storage = input, .reads = true});
    }
    const std::vector<GraphBuilder::Fresh> fresh = {{.storage = storages_, .size = Bytes(size)}};
    builder_.add_op(
        {.name = heavy ? 1U : 0U, .cost = Nanoseconds(cost), .inputs = {}, .outputs = {}}, operands,
        fresh, true);
    return storages_++;
  }
  void update(std::uint32_t storage) {
    const std::vector<TraceOperand> operands = {
        {.storage = storage, .reads = true, .written = true}};
    builder_.add_op({.name = 0, .cost = Nanoseconds(10), .inputs = {}, .outputs = {}}, operands, {},
                    true);
  }
  void drop(std::uint32_t storage) { builder_.end_storage(storage); }
  TraceGraph take() { return builder_.take(); }

 private:
  GraphBuilder builder_{Bytes(0)};
  std::uint32_t storages_ = 0;
};

}  // namespace recoup::detail
