// A random trace with every kind of record that a recorder writes.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "csrc/trace/limits.h"
#include "csrc/trace/sink.h"

namespace recoup::detail {

class RandomTrace {
 public:
  // `most_bits`: the largest number of bits of a size.
  RandomTrace(std::uint64_t seed, unsigned most_bits) : random_(seed), most_bits_(most_bits) {}

  Trace make(int events) {
    if (below(3) == 0) {
      builder_.set_device({.alignment = Bytes(std::int64_t{1} << below(10)),
                           .unit = size(),
                           .outside = Bytes(below(2) * size().count()),
                           .window = Bytes(below(2) * size().count()),
                           .bounces = below(2) == 0,
                           .compares = below(2) == 0});
    }
    for (const char* name : {"aten::add.Tensor", "", "aten::convolution", "a step"}) {
      builder_.add_name(name);
    }
    for (int i = 0; i < kKernels; ++i) {
      add_kernel();
    }
    for (int i = 0; i < events; ++i) {
      // Half of the events are ops, as in a program.
      add(below(2) == 0 ? Kind::kOp
                        : static_cast<Kind>(below(static_cast<std::size_t>(Kind::kParts) + 1)));
    }
    return builder_.take();
  }

 private:
  using Kind = TraceEvent::Kind;
  static constexpr int kKernels = 8;
  static constexpr std::size_t kMostScopeExits = 20;

  struct Storage {
    std::uint32_t number = 0;
    bool external = false;
    int pins = 0;
    bool escaped = false;
  };

  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }
  Bytes size() {
    return Bytes(1 + static_cast<std::int64_t>(random_() >> (64 - 1 - below(most_bits_))));
  }
  Bytes part_of(Bytes whole) {
    return below(3) != 0 ? whole
                         : Bytes(1 + static_cast<std::int64_t>(
                                         random_() % static_cast<std::uint64_t>(whole.count())));
  }

  void add_kernel() {
    std::vector<KernelStep> steps;
    std::vector<TraceFresh> kept;
    const std::uint32_t made = below(4);
    for (std::uint32_t i = 0; i < made; ++i) {
      steps.push_back({.kind = KernelStep::Kind::kAllocate, .index = 0, .size = size()});
      kept.push_back({.allocation = i, .nbytes = part_of(steps.back().size)});
    }
    const std::size_t freed = kept.empty() ? 0 : below(kept.size() + 1);
    std::vector<KernelStep> held;
    for (std::size_t i = 0; i < freed; ++i) {
      const std::size_t at = below(kept.size());
      held.push_back({.index = kept[at].allocation, .size = steps[kept[at].allocation].size});
      steps.push_back(
          {.kind = KernelStep::Kind::kFree, .index = kept[at].allocation, .size = Bytes(0)});
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
    }
    builder_.add_kernel(steps);
    kept_.push_back(kept);
    freed_.push_back(held);
  }

  // A multiple of any alignment.
  static Bytes aligned(std::uint32_t n) { return Bytes(n * kMostAlignment.count()); }

  std::uint32_t planned_op() {
    const std::uint32_t which = below(4);
    return which == 0   ? TraceEviction::kMoves
           : which == 1 ? TraceEviction::kLastRun + below(9)
                        : below(9);
  }

  void add_plan() {
    TracePlan plan{.step = random_(), .budget = size(), .expected = Nanoseconds(size().count())};
    plan.listed = below(4) != 0;
    std::vector<TraceEviction> evictions;
    std::uint32_t ops = 0;
    for (std::uint32_t n = plan.listed ? below(5) : 0; n > 0; --n) {
      ops += below(3);
      evictions.push_back(
          {.ops = ops, .op = planned_op(), .slot = below(3), .spills = below(2) == 0});
    }
    std::vector<TraceBlock> blocks;
    std::vector<TraceStart> starts;
    for (std::uint32_t n = plan.listed ? below(4) : 0; n > 0; --n) {
      blocks.push_back({.ops = blocks.empty() ? below(3) : blocks.back().ops + below(3),
                        .evictions = below(9),
                        .size = aligned(1 + below(9)),
                        .at = aligned(below(99)),
                        .other = aligned(below(99)),
                        .op = planned_op(),
                        .slot = below(3)});
      starts.push_back({.size = aligned(1 + below(9)),
                        .op = below(9),
                        .slot = below(3),
                        .storage = 0,
                        .at = aligned(below(99)),
                        .other = aligned(below(99))});
    }
    builder_.add_plan(plan, {.evictions = evictions, .blocks = blocks, .starts = starts});
  }

  // The lowest-numbered allocation that a kernel does not free, or 0.
  static std::uint32_t first_kept(const std::vector<TraceFresh>& fresh) {
    std::uint32_t first = fresh.empty() ? 0 : fresh.front().allocation;
    for (const TraceFresh& each : fresh) {
      first = std::min(first, each.allocation);
    }
    return first;
  }

  void add_op() {
    TraceOp op;
    op.name = below(3);
    op.kernel = below(kKernels);
    const std::vector<TraceFresh>& fresh = kept_[op.kernel];
    op.cost = Nanoseconds(size().count() >> below(3));
    op.workspace = below(2) == 0 ? Bytes(0) : size();
    op.record_bytes = Bytes(below(2000));
    op.repeatable = below(8) != 0;
    op.random = below(4) == 0;
    op.verifiable = below(2) == 0;
    op.failed = fresh.empty() && below(8) == 0;
    op.may_overflow = below(2) == 0;
    op.once = below(4) == 0;
    op.copies = below(16) == 0 ? below(first_kept(fresh) + 1) : 0;
    std::vector<TraceOperand> operands;
    for (std::uint32_t n = below(4); n > 0 && !live_.empty(); --n) {
      const std::uint32_t storage = live_[below(live_.size())].number;
      if (std::none_of(operands.begin(), operands.end(),
                       [&](const TraceOperand& each) { return each.storage == storage; })) {
        const bool written = below(3) == 0;
        const bool overwritten = written && below(3) == 0;
        const bool left_out = below(8) == 0;
        const bool reads = !overwritten && (below(4) != 0 || (written && !left_out));
        operands.push_back({.storage = storage,
                            .reads = reads,
                            .written = written,
                            .overwritten = overwritten,
                            .left_out = left_out,
                            .overwritable = reads && !written && below(2) == 0});
      }
    }
    builder_.add_op(op, operands, fresh);
    for (const KernelStep& each : freed_[op.kernel]) {
      if (below(8) == 0) {
        builder_.add_event({.kind = Kind::kAllocate, .index = each.index + 1, .size = each.size});
        ++blocks_;
      }
    }
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      live_.push_back({.number = storages_++});
    }
  }

  void add_list_op() {
    if (std::exchange(in_parts_, true)) {
      return;
    }
    std::vector<TracePart> parts(below(4));
    std::vector<TracePartOperand> operands;
    for (TracePart& part : parts) {
      part.workspace = below(3) == 0 ? size() : Bytes(0);
      const auto first = static_cast<std::ptrdiff_t>(operands.size());
      for (std::uint32_t n = below(5); n > 0 && !live_.empty(); --n) {
        const std::uint32_t storage = live_[below(live_.size())].number;
        if (std::none_of(operands.begin() + first, operands.end(),
                         [&](const TracePartOperand& each) { return each.storage == storage; })) {
          operands.push_back({.storage = storage, .written = below(3) != 0});
          ++part.operand_count;
        }
      }
    }
    builder_.add_list_op({.name = below(3)}, parts, operands);
  }

  void add(Kind kind) {
    TraceEvent event{.kind = kind, .index = 0, .size = Bytes(0)};
    switch (kind) {
      case Kind::kOp:
        add_op();
        return;
      case Kind::kPlan:
        add_plan();
        return;
      case Kind::kParts:
        add_list_op();
        return;
      case Kind::kPartsEnd:
        if (!std::exchange(in_parts_, false)) {
          return;
        }
        break;
      case Kind::kExternal:
        event.size = below(8) == 0 ? Bytes(0) : size();
        event.index = below(4) == 0 ? 1 + below(segments_ + 1) : 0;
        live_.push_back({.number = storages_++, .external = true});
        break;
      case Kind::kAllocate:
      case Kind::kFree:
      case Kind::kAdopt: {
        const Bytes whole = size();
        builder_.add_event({.kind = Kind::kAllocate, .index = 0, .size = whole});
        event.index = blocks_++;
        if (kind == Kind::kAllocate) {
          return;
        }
        if (kind == Kind::kAdopt) {
          event.size = part_of(whole);
          live_.push_back({.number = storages_++});
        }
        break;
      }
      case Kind::kScopeExit:
        if (++exits_ > kMostScopeExits) {
          return;
        }
        break;
      case Kind::kStep:
        event.index = 3;
        break;
      case Kind::kTime:
        event.index = below(1U << 31);
        break;
      case Kind::kSegment:
        event.index = below(segments_ + 1);
        event.size = below(3) == 0 ? Bytes(0) : size();
        segments_ += event.index == segments_ ? 1 : 0;
        break;
      default:
        if (live_.empty() || !of_a_storage(event)) {
          return;
        }
        break;
    }
    builder_.add_event(event);
  }

  bool of_a_storage(TraceEvent& event) {
    event.size = event.kind == Kind::kRule ? Bytes(below(kStorageRules)) : Bytes(0);
    const std::size_t at = below(live_.size());
    Storage& storage = live_[at];
    event.index = storage.number;
    if ((event.kind == Kind::kDisown && !storage.external) ||
        (event.kind == Kind::kLeave && !storage.escaped) ||
        (event.kind == Kind::kEscapeEnd && !storage.escaped) ||
        (event.kind == Kind::kUnpin && storage.pins == 0)) {
      return false;
    }
    storage.escaped |= event.kind == Kind::kEscape;
    storage.escaped &= event.kind != Kind::kEscapeEnd;
    storage.external |= event.kind == Kind::kLeave;
    storage.pins += event.kind == Kind::kPin ? 1 : event.kind == Kind::kUnpin ? -1 : 0;
    if (event.kind == Kind::kDie || event.kind == Kind::kDisown) {
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return true;
  }

  std::mt19937_64 random_;
  unsigned most_bits_;
  TraceBuilder builder_;
  std::vector<std::vector<TraceFresh>> kept_;  // by kernel
  // by kernel: allocations that it frees, by number and size
  std::vector<std::vector<KernelStep>> freed_;
  std::vector<Storage> live_;
  std::uint32_t storages_ = 0;
  std::uint32_t segments_ = 0;
  std::uint32_t blocks_ = 0;
  std::size_t exits_ = 0;
  bool in_parts_ = false;
};

}  // namespace recoup::detail
