// A call of a graph that a compiler made from many ops: Note [Compiled graphs].
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

// Runs one call of a graph. The records of the values that the call made share its ownership.
class RECOUP_API CompiledCall : public torch::CustomClassHolder {
 public:
  CompiledCall();
  ~CompiledCall() override;
  CompiledCall(const CompiledCall&) = delete;
  CompiledCall& operator=(const CompiledCall&) = delete;

  // Runs the graph. It may read all of these tensors, may write only those of `written`, and must
  // keep none. Later runs get tensors of the same shapes over other memory, on any thread of the
  // scope. The number of returned tensors must not change. They may depend only on these tensors
  // and on random numbers that PyTorch's ops draw.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& read,
                                      const std::vector<at::Tensor>& written) = 0;

  // For recoup: the random numbers that the first run drew, and whether the graph must not run
  // again.
  [[nodiscard]] detail::DrawTape& draws() const { return *draws_; }
  [[nodiscard]] bool once() const { return once_; }
  void set_once() { once_ = true; }

 private:
  std::unique_ptr<detail::DrawTape> draws_;
  bool once_ = false;
};

namespace detail {

// The call among the arguments of such an op.
[[nodiscard]] inline CompiledCall& compiled_call(c10::ArrayRef<c10::IValue> arguments) {
  return static_cast<CompiledCall&>(*arguments.front().toCapsule());
}

}  // namespace detail
}  // namespace recoup
