// What the draws of random numbers in a call of a compiled graph began with: Note [Compiled
// graphs].
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <vector>

#include "csrc/torch/compat/generators.h"

namespace recoup::detail {

// The states of generators that the draws of a call's first run began with, in order.
class DrawTape {
 public:
  DrawTape() = default;
  DrawTape(const DrawTape&) = delete;
  DrawTape& operator=(const DrawTape&) = delete;

  void rewind() { next_ = 0; }
  // The next draw of another run; null: the first one did not come so far.
  [[nodiscard]] const GeneratorState* next() {
    return next_ < states_.size() ? &states_[next_++] : nullptr;
  }
  // Behind a draw: from which generator, and the state that it was left in.
  void add(const at::Generator& generator, GeneratorState before, GeneratorState after);
  // The first run did not come to its end, and will not be tried again: the program's generator is
  // as it was, unless somebody else has drawn from it since.
  void undo();
  [[nodiscard]] std::size_t memory() const {
    return states_.capacity() * sizeof(GeneratorState) + states_.size() * sizeof(SavedGenerator);
  }

 private:
  std::vector<GeneratorState> states_;
  std::size_t next_ = 0;
  at::Generator generator_;  // of all draws; undefined: there are several
  GeneratorState after_;     // the last one
};

}  // namespace recoup::detail
