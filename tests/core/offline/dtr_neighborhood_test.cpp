// e* in the model of the DTR authors' simulator, compared with sums that are computed from the ops
// only.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "csrc/offline/dtr/neighborhood.h"

namespace recoup::detail {
namespace {

constexpr std::uint32_t kOps = 60;

struct RandomProgram {
  explicit RandomProgram(std::uint64_t seed) : random(seed) {
    std::vector<DtrTensorId> tensors = {program.add_constant(1_B)};
    while (tensors.size() < kOps) {
      std::vector<DtrTensorId> arguments;
      for (std::size_t i = 0; i < 1 + below(3); ++i) {
        const std::size_t back = std::min(tensors.size(), 1 + below(12));
        arguments.push_back(tensors[tensors.size() - back]);
      }
      std::vector<DtrOutput> outputs;
      for (std::size_t i = 0; i < 1 + below(2); ++i) {
        const bool view = below(4) == 0;
        outputs.push_back(view ? DtrOutput{.size = 0_B, .alias = 0} : DtrOutput{.size = 1_B});
      }
      for (const DtrTensorId made :
           program.add_op("op", Nanoseconds(1 + below(1000)), arguments, outputs)) {
        tensors.push_back(made);
      }
    }
  }

  std::size_t below(std::size_t count) { return random() % count; }

  std::mt19937_64 random;
  DtrProgram program;
};

// The cost of all evicted storages that are reachable through evicted storages, in one direction
// along the ops that were requested so far.
Nanoseconds reached(const DtrState& state, DtrStorageId start, bool down) {
  std::set<DtrStorageId> found = {start};
  Nanoseconds sum{0};
  for (bool more = true; more;) {
    more = false;
    for (std::uint32_t i = 0; i <= state.last_op.index(); ++i) {
      const DtrOp& op = state.program[DtrOpId(i)];
      for (const DtrTensorId argument : op.arguments) {
        for (const DtrTensorId output : op.outputs) {
          const DtrStorageId parent = state.program[argument].storage;
          const DtrStorageId child = state.program[output].storage;
          const DtrStorageId from = down ? parent : child;
          const DtrStorageId to = down ? child : parent;
          if (found.contains(from) && !state[to].resident && found.insert(to).second) {
            sum += state[to].cost;
            more = true;
          }
        }
      }
    }
  }
  return sum;
}

class DtrNeighborhoodTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void check() {
    for (std::uint32_t i = 0; i < state_.storages.size(); ++i) {
      const DtrStorageId id(i);
      if (state_[id].resident && !random_.program[id].constant) {
        const Nanoseconds ancestors = reached(state_, id, false);
        ASSERT_EQ(ancestors_->cost(id), ancestors);
        ASSERT_EQ(exact_->cost(id), ancestors + reached(state_, id, true));
      }
    }
  }

  void ask(DtrOpId id) {
    state_.last_op = id;
    for (const DtrTensorId output : random_.program[id].outputs) {
      const DtrStorageId storage = random_.program[output].storage;
      state_[storage].cost += random_.program[output].cost;
      exact_->on_ask(storage);
      ancestors_->on_ask(storage);
      if (random_.program[storage].constant) {
        state_[storage].resident = true;
      }
    }
  }

  void flip(DtrStorageId id) {
    state_[id].resident = !state_[id].resident;
    for (DtrNeighborhood* neighborhood : {exact_.get(), ancestors_.get()}) {
      if (state_[id].resident) {
        neighborhood->on_return(id);
      } else {
        neighborhood->on_evict(id);
      }
    }
  }

  RandomProgram random_{GetParam()};
  DtrState state_{random_.program};
  std::unique_ptr<DtrNeighborhood> exact_ = make_neighborhood(DtrScore::Cost::kExact, state_);
  std::unique_ptr<DtrNeighborhood> ancestors_ =
      make_neighborhood(DtrScore::Cost::kAncestors, state_);
};

TEST_P(DtrNeighborhoodTest, AgreesWithSumsOverTheOps) {
  for (const DtrStep& step : random_.program.steps()) {
    ask(DtrOpId(step.index));
    check();
    for (int i = 0; i < 4; ++i) {
      const DtrOp& op = random_.program[DtrOpId(
          static_cast<std::uint32_t>(random_.below(state_.last_op.index() + 1)))];
      const DtrStorageId id = random_.program[op.outputs[random_.below(op.outputs.size())]].storage;
      if (!random_.program[id].constant) {
        flip(id);
        check();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DtrNeighborhoodTest, ::testing::Range<std::uint64_t>(0, 8));

}  // namespace
}  // namespace recoup::detail
