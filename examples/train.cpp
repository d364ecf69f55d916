// A LibTorch program in half of its memory: trains a small convolutional net with dropout three
// times and compares every bit.
//
//   1. plain PyTorch
//   2. inside a budget that is never reached, which measures the memory of the training
//   3. inside half of that
//
// Exits with 1 if a bit differs or nothing was evicted. `make example` builds and runs it.
#include <torch/torch.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <iomanip>
#include <iostream>
#include <utility>
#include <vector>

#include "recoup/torch.h"

namespace {

using recoup::Bytes;
using namespace recoup::literals;

constexpr std::int64_t kSteps = 5;
constexpr std::int64_t kImages = 24;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kChannels = 24;
constexpr std::int64_t kBlocks = 6;
constexpr Bytes kUnreached = 2_GiB;  // addresses are reserved, memory is not

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : conv(torch::nn::Conv2dOptions(kChannels, kChannels, 3).padding(1)),
        norm(kChannels),
        dropout(0.1) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("dropout", dropout);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x + dropout(norm(conv(x)).relu_()); }

  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl() : stem(torch::nn::Conv2dOptions(3, kChannels, 3).padding(1)), head(kChannels, 10) {
    register_module("stem", stem);
    register_module("blocks", blocks);
    register_module("head", head);
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      blocks->push_back(Block());
    }
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return head(blocks->forward(stem(images)).mean({2, 3}));
  }

  torch::nn::Conv2d stem;
  torch::nn::Sequential blocks;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

// Results of a training, in order: losses, then parameters, gradients and buffers.
using Trained = std::vector<torch::Tensor>;

// An ordinary training loop without a budget; calls `end_step` after each step.
Trained train(const std::function<void()>& end_step) {
  torch::manual_seed(0);
  Net net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  Trained trained;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const torch::Tensor images = torch::randn({kImages, 3, kSide, kSide});
    const torch::Tensor labels = torch::randint(10, {kImages}, torch::kLong);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net(images), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    trained.push_back(loss.detach());
    end_step();
  }
  for (const torch::Tensor& parameter : net->parameters()) {
    trained.push_back(parameter.detach());
    trained.push_back(parameter.grad());
  }
  for (const torch::Tensor& buffer : net->buffers()) {
    trained.push_back(buffer);
  }
  return trained;
}

struct Budgeted {
  Trained trained;
  recoup::Stats stats;
};

Budgeted train_in(Bytes bytes) {
  recoup::Options options;
  options.budget = bytes;
  options.policy = "planned";                  // plans the evictions of repeating steps
  options.planning = recoup::Planning::kWait;  // waits for the plan, as the run has few steps
  recoup::Budget budget(options);
  budget.enter();
  Trained trained = train([&budget] { budget.mark_step("step"); });
  // Restores evicted tensors, so that they can be used outside the scope.
  budget.leave();
  return {std::move(trained), budget.stats()};
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor ours = a.contiguous();
  const torch::Tensor theirs = b.contiguous();
  return ours.dtype() == theirs.dtype() && ours.sizes() == theirs.sizes() &&
         std::memcmp(ours.const_data_ptr(), theirs.const_data_ptr(), ours.nbytes()) == 0;
}

bool same_bits(const Trained& a, const Trained& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) {
      return false;
    }
  }
  return true;
}

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

int run() {
  const Trained plain = train([] {});
  const Budgeted whole = train_in(kUnreached);
  const Budgeted half = train_in(Bytes(whole.stats.peak_bytes / 2));

  const bool equal = same_bits(plain, whole.trained) && same_bits(plain, half.trained);
  std::cout << std::fixed << std::setprecision(2) << "without a budget: peak "
            << megabytes(whole.stats.peak_bytes) << " MB\n"
            << "with half of that: peak " << megabytes(half.stats.peak_bytes) << " MB, "
            << half.stats.evictions << " evictions, " << half.stats.replays << " replays, "
            << half.stats.followed_steps << " of " << kSteps << " steps as planned\n"
            << (equal ? "bits equal" : "BITS DIFFER") << " in " << plain.size()
            << " tensors: losses, parameters, gradients, buffers\n";
  if (half.stats.evictions == 0) {
    std::cout << "nothing was evicted\n";
  }
  return equal && half.stats.evictions > 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
