#include "csrc/torch/ops/draw_tape.h"

#include <utility>

namespace recoup::detail {

void DrawTape::add(const at::Generator& generator, GeneratorState before, GeneratorState after) {
  if (states_.empty()) {
    generator_ = generator;
  } else if (generator_.defined() && !(generator_ == generator)) {
    generator_ = at::Generator();
  }
  states_.push_back(std::move(before));
  next_ = states_.size();
  after_ = std::move(after);
}

void DrawTape::undo() {
  if (generator_.defined() && after_ != nullptr) {
    const GeneratorLock lock(generator_);
    if (SavedGenerator(generator_) == *after_) {
      states_.front()->put_into(generator_);
    }
  }
}

}  // namespace recoup::detail
