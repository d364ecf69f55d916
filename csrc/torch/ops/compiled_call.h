// A call of a graph that a compiler made of many ops: Note [Compiled graphs].
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <vector>

#include "recoup/api.h"

namespace recoup {

namespace detail {
class DrawTape;
}  // namespace detail

// A call of a graph: what runs it. Records of what it made keep it.
class RECOUP_API CompiledCall : public torch::CustomClassHolder {
 public:
  CompiledCall();
  ~CompiledCall() override;
  CompiledCall(const CompiledCall&) = delete;
  CompiledCall& operator=(const CompiledCall&) = delete;

  // Runs the graph. It may read all of these tensors, and write those of `written` alone; it must
  // keep none. Another time they are tensors of the same shapes over other memory, on whichever
  // thread of the scope. What it returns must be as many tensors each time, and computed from these
  // alone, but for random numbers that are drawn by ops of PyTorch's.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& read,
                                      const std::vector<at::Tensor>& written) = 0;

  // For us: the random numbers that the first run drew, and whether there is to be no other.
  [[nodiscard]] detail::DrawTape& draws() const { return *draws_; }
  [[nodiscard]] bool once() const { return once_; }
  void set_once() { once_ = true; }

 private:
  std::unique_ptr<detail::DrawTape> draws_;
  bool once_ = false;
};

namespace detail {

// Of an op that is one: the call among its arguments.
[[nodiscard]] inline CompiledCall& compiled_call(c10::ArrayRef<c10::IValue> arguments) {
  return static_cast<CompiledCall&>(*arguments.front().toCapsule());
}

}  // namespace detail
}  // namespace recoup
