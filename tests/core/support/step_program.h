// Random networks that repeat a training step: the workload that schedules are made for.
#pragma once

#include <deque>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/support/engine_program.h"

namespace recoup::detail {

// A network is drawn from its seed and runs the same ops in the same order in every step.
class StepProgram {
 public:
  enum class Keep : std::uint8_t {
    kNothing,
    kGradients,  // every second one, until the next step has made its own
  };
  StepProgram(std::uint64_t seed, const Options& options, Keep keep = Keep::kNothing)
      : seed_(seed), keep_(keep), program_(options) {}
  [[nodiscard]] Program& program() { return program_; }

  // Multiplies the drawn costs of all later ops by `factor`.
  void set_cost_factor(std::int64_t factor) { cost_factor_ = factor; }

  using BeforeOp = std::function<void(Program&)>;
  // `extra`: runs one additional op in this step. `before_op` is called before each op.
  void step(bool extra = false, BeforeOp before_op = nullptr) {
    before_op_ = std::move(before_op);
    random_.seed(seed_);
    for (std::uint64_t i = weights_.empty() ? 3 + random_() % 4 : 0; i > 0; --i) {
      weights_.push_back(program_.external(Bytes(static_cast<std::int64_t>(65 + random_() % 64))));
    }
    random_.seed(seed_ + 1);
    saved_.clear();
    Tensor x = call("embed", {weights_[0]});
    for (std::uint64_t layer = 4 + random_() % 12; layer > 0; --layer) {
      x = forward(x);
    }
    if (extra) {
      program_.drop(call("relu", {x}));
    }
    kept_before_ = kept_.size();
    backward(x);
  }

 private:
  Tensor call(std::string name, const std::vector<Tensor>& inputs,
              std::vector<Tensor> updates = {}) {
    Call made{.arguments = {},
              .fresh = {Bytes(static_cast<std::int64_t>(65 + random_() % 300))},
              .workspace = {}};
    for (const Tensor input : inputs) {
      made.arguments.push_back({.tensor = input});
    }
    for (const Tensor update : updates) {
      made.arguments.push_back({.tensor = update, .access = Access::kUpdate});
    }
    if (random_() % 3 == 0) {
      made.workspace.push_back(Bytes(static_cast<std::int64_t>(1 + random_() % 200)));
    }
    made.cost = Nanoseconds(static_cast<std::int64_t>(1 + random_() % 1000) * cost_factor_);
    made.repeatable = random_() % 20 != 0;
    made.name = std::move(name);
    return run(made).front();
  }

  std::vector<Tensor> run(const Call& made) {
    if (before_op_) {
      before_op_(program_);
    }
    return program_.run(made);
  }

  Tensor forward(Tensor x) {
    switch (random_() % 5) {
      case 0: {  // the input is saved
        const Tensor y = call("conv", {x, weights_[random_() % weights_.size()]});
        saved_.push_back(x);
        return y;
      }
      case 1: {  // the output is saved
        const Tensor y = call("relu", {x});
        drop_unless_saved(x);
        saved_.push_back(y);
        return y;
      }
      case 2: {  // in place
        Call made{.arguments = {{.tensor = x, .access = Access::kUpdate}}, .fresh = {}};
        made.name = "add_";
        run(made);
        return x;
      }
      case 3: {  // a branch that joins again
        const Tensor y = call("conv", {x, weights_[random_() % weights_.size()]});
        const Tensor z = call("add", {x, y});
        drop_unless_saved(x);
        drop_unless_saved(y);
        saved_.push_back(z);
        return z;
      }
      default: {  // nothing is saved
        const Tensor y = call("dropout", {x});
        drop_unless_saved(x);
        return y;
      }
    }
  }

  void backward(Tensor x) {
    Tensor gradient = call("loss", {x});
    drop_unless_saved(x);
    while (!saved_.empty()) {
      const Tensor saved = saved_.back();
      saved_.pop_back();
      const Tensor next = call("backward", {saved, gradient});
      end(gradient);
      gradient = next;
      drop_unless_saved(saved);
    }
    end(gradient);
  }

  void end(Tensor gradient) {
    if (keep_ == Keep::kGradients && saved_.size() % 2 == 1) {
      keep(gradient);
    }
    program_.drop(gradient);
  }

  void keep(Tensor gradient) {
    Call made{.arguments = {{.tensor = gradient}},
              .fresh = {Bytes(static_cast<std::int64_t>(65 + random_() % 300))}};
    made.name = "accumulate";
    made.repeatable = false;
    kept_.push_back(run(made).front());
    if (kept_before_ > 0) {
      --kept_before_;
      program_.drop(kept_.front());
      kept_.pop_front();
    }
  }

  // Drops the tensor unless it is saved.
  void drop_unless_saved(Tensor tensor) {
    if (std::find(saved_.begin(), saved_.end(), tensor) == saved_.end()) {
      program_.drop(tensor);
    }
  }

  std::uint64_t seed_;
  std::int64_t cost_factor_ = 1;
  const Keep keep_;
  std::mt19937_64 random_;
  Program program_;
  BeforeOp before_op_;
  std::vector<Tensor> weights_;
  std::vector<Tensor> saved_;
  std::deque<Tensor> kept_;
  std::size_t kept_before_ = 0;  // the first kept_before_ of kept_ are from the previous step
};

}  // namespace recoup::detail
