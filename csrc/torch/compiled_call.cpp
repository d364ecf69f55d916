#include "csrc/torch/compiled_call.h"

#include "csrc/torch/draw_tape.h"

namespace recoup {

CompiledCall::CompiledCall() : draws_(std::make_unique<detail::DrawTape>()) {}
CompiledCall::~CompiledCall() = default;

}  // namespace recoup
