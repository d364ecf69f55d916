// Note [In place]: an output may take its input's place when
//   - its op allows the pair, is not disabled, and is the only op that reads the input,
//   - the input is dead after the op: it lives until step + 1,
//   - the output comes to life in the op, after its input,
//   - both are of one stream, and the output is no larger than the input,
//   - no other output has taken that place, and the output takes no other.
// The two are then one buffer of the input's size from the input's birth to the output's death. An
// output that is smaller leaves bytes of the place unused, so this is done only where the most live
// bytes at one moment do not rise.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "csrc/base/strings.h"
#include "csrc/offline/layout/prepare.h"

namespace recoup::detail {
namespace {

// The number of live bytes over time, as steps between births and deaths.
class Profile {
 public:
  explicit Profile(const LayoutProblem& problem) {
    for (const LayoutBuffer& buffer : problem.buffers) {
      times_.push_back(buffer.lower);
      times_.push_back(buffer.upper);
    }
    std::sort(times_.begin(), times_.end());
    times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
    live_.resize(times_.size());
    for (const LayoutBuffer& buffer : problem.buffers) {
      live_[at(buffer.lower)] += buffer.size;
      live_[at(buffer.upper)] -= buffer.size;
    }
    for (std::size_t i = 1; i < live_.size(); ++i) {
      live_[i] += live_[i - 1];
    }
    for (const Bytes bytes : live_) {
      most_ = std::max(most_, bytes);
    }
  }

  // Adds `bytes` in [lower, upper) unless the maximum would rise. Returns whether they were added.
  bool add_below_maximum(LayoutTime lower, LayoutTime upper, Bytes bytes) {
    const auto begin = live_.begin() + static_cast<std::ptrdiff_t>(at(lower));
    const auto end = live_.begin() + static_cast<std::ptrdiff_t>(at(upper));
    if (std::any_of(begin, end, [&](Bytes live) { return live + bytes > most_; })) {
      return false;
    }
    std::for_each(begin, end, [&](Bytes& live) { live += bytes; });
    return true;
  }

 private:
  [[nodiscard]] std::size_t at(LayoutTime time) const {
    return static_cast<std::size_t>(std::lower_bound(times_.begin(), times_.end(), time) -
                                    times_.begin());
  }

  std::vector<LayoutTime> times_;
  std::vector<Bytes> live_;  // by interval from times_[i] to times_[i + 1]
  Bytes most_;
};

void check_ids(const LayoutProblem& problem) {
  for (const LayoutOp& op : problem.ops) {
    const auto check = [&](BufferId id) {
      if (!id.valid() || id.index() >= problem.buffers.size()) {
        throw std::invalid_argument(str_cat("op '", op.name, "' names buffer ", id.index(),
                                            ", but the number of buffers is ",
                                            problem.buffers.size()));
      }
    };
    for (const BufferId id : op.reads) {
      check(id);
      const LayoutBuffer& buffer = problem.buffers[id.index()];
      if (op.step < buffer.lower || op.step >= buffer.upper) {
        throw std::invalid_argument(str_cat("op '", op.name, "' reads ", describe(problem, id),
                                            " at step ", op.step, ", which is live in [",
                                            buffer.lower, ", ", buffer.upper, ")"));
      }
    }
    for (const InPlacePair& pair : op.in_place) {
      check(pair.output);
      check(pair.input);
      if (std::find(op.reads.begin(), op.reads.end(), pair.input) == op.reads.end()) {
        throw std::invalid_argument(str_cat("op '", op.name, "' does not read ",
                                            describe(problem, pair.input),
                                            ", so no output can take its place"));
      }
    }
  }
}

// The number of ops that read each buffer; an op that reads it twice counts once.
std::vector<int> count_readers(const LayoutProblem& problem) {
  std::vector<int> readers(problem.buffers.size());
  for (const LayoutOp& op : problem.ops) {
    const std::unordered_set<BufferId> distinct(op.reads.begin(), op.reads.end());
    for (const BufferId id : distinct) {
      ++readers[id.index()];
    }
  }
  return readers;
}

// Checks all conditions of Note [In place] except those about places that are already taken.
bool is_safe(const LayoutProblem& problem, const LayoutOp& op, const InPlacePair& pair,
             int readers) {
  const LayoutBuffer& output = problem.buffers[pair.output.index()];
  const LayoutBuffer& input = problem.buffers[pair.input.index()];
  return readers == 1 && input.upper == op.step + 1 && output.lower == op.step &&
         input.lower < op.step && input.stream == output.stream && output.size <= input.size &&
         output.size.count() > 0;
}

}  // namespace

std::vector<BufferId> choose_in_place(const LayoutProblem& problem, const LayoutOptions& options) {
  std::vector<BufferId> in_place(problem.buffers.size());
  if (problem.ops.empty()) {
    return in_place;
  }
  check_ids(problem);
  const std::vector<int> readers = count_readers(problem);
  const std::unordered_set<std::string> disabled(options.disable_inplace_ops.begin(),
                                                 options.disable_inplace_ops.end());
  // by step, so that the size of a place is known before another output takes it
  std::vector<const LayoutOp*> in_order;
  for (const LayoutOp& op : problem.ops) {
    in_order.push_back(&op);
  }
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const LayoutOp* a, const LayoutOp* b) { return a->step < b->step; });

  Profile profile(problem);
  // by buffer: the size of the place that it is in
  std::vector<Bytes> room(problem.buffers.size());
  std::transform(problem.buffers.begin(), problem.buffers.end(), room.begin(),
                 [](const LayoutBuffer& buffer) { return buffer.size; });
  std::vector<bool> taken(problem.buffers.size());
  for (const LayoutOp* op : in_order) {
    if (disabled.contains(op->name)) {
      continue;
    }
    for (const InPlacePair& pair : op->in_place) {
      const std::uint32_t output = pair.output.index();
      const std::uint32_t input = pair.input.index();
      if (taken[input] || in_place[output].valid() ||
          !is_safe(problem, *op, pair, readers[input])) {
        continue;
      }
      // At the op itself output and input share the place; after it the place keeps its size.
      const LayoutBuffer& buffer = problem.buffers[output];
      const Bytes unused = room[input] - buffer.size;
      if (unused.count() > 0 && !profile.add_below_maximum(op->step + 1, buffer.upper, unused)) {
        continue;
      }
      taken[input] = true;
      in_place[output] = pair.input;
      room[output] = room[input];
    }
  }
  return in_place;
}

}  // namespace recoup::detail
