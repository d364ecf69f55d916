// Generator states before the draws in a call of a compiled graph: Note [Compiled graphs].
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <vector>

#include "csrc/torch/compat/generators.h"

namespace recoup::detail {

// The generator states before each draw of a call's first run, in order.
class DrawTape {
 public:
  DrawTape() = default;
  DrawTape(const DrawTape&) = delete;
  DrawTape& operator=(const DrawTape&) = delete;

  void rewind() { next_ = 0; }
  // The state for the next draw of another run; null if the first run did not get that far.
  [[nodiscard]] const GeneratorState* next() {
    return next_ < states_.size() ? &states_[next_++] : nullptr;
  }
  // Adds a finished draw: its generator, and that generator's states before and after it.
  void add(const at::Generator& generator, GeneratorState before, GeneratorState after);
  // The first run failed and will not be repeated: restores the program's generator, unless other
  // code has drawn from it since.
  void undo();
  [[nodiscard]] std::size_t memory() const {
    return states_.capacity() * sizeof(GeneratorState) + states_.size() * sizeof(SavedGenerator);
  }

 private:
  std::vector<GeneratorState> states_;
  std::size_t next_ = 0;
  at::Generator generator_;  // the one of all draws; undefined if there are several
  GeneratorState after_;     // after the last draw
};

}  // namespace recoup::detail
