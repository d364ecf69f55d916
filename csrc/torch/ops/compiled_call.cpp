#include "csrc/torch/ops/compiled_call.h"

#include "csrc/torch/ops/draw_tape.h"

namespace recoup {

CompiledCall::CompiledCall() : draws_(std::make_unique<detail::DrawTape>()) {}
CompiledCall::~CompiledCall() = default;

}  // namespace recoup
