#include "csrc/torch/ops/compiled_frame.h"

#include <memory>
#include <utility>
#include <vector>

#include "csrc/torch/backend/backend_type.h"
#include "csrc/torch/backend/backends.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/ops/draw_tape.h"
#include "csrc/torch/ops/draws.h"
#include "csrc/torch/ops/traits_table.h"

namespace recoup::detail {
namespace {

// The device on which an op of a graph draws: that of its tensors, or of the new tensors.
c10::Device device_of_draw(c10::DispatchKeySet below, const std::vector<c10::IValue>& arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice()) {
      return argument.toDevice();
    }
  }
  const c10::DeviceType type = backend_type_of(below).type;
  return accelerator() == type ? with_index(c10::Device(type)) : c10::Device(c10::kCPU);
}

}  // namespace

CompiledFrame::CompiledFrame(CompiledCall& call)
    : call_(call), outer_(innermost()), was_inside_(Hook::state()) {
  call_.draws().rewind();
  innermost() = this;
  set_in_graph(true);
  Hook::set_inside(false);  // the graph's ops are received by `pass`
}

CompiledFrame::~CompiledFrame() {
  innermost() = outer_;
  set_in_graph(outer_ != nullptr);
  Hook::set_state(was_inside_);
}

void CompiledFrame::rethrow_if(std::string_view what) const {
  if (failure_ && what.find(failure_->report().to_string()) != std::string_view::npos) {
    throw PoolOutOfMemory(*failure_);
  }
}

void CompiledFrame::pass(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                         torch::jit::Stack* stack) {
  const OpTraits& traits = TraitsTable::instance().of(op, reach_of(below));
  TORCH_CHECK(!traits.foreign, "recoup: a compiled graph calls the op ", traits.name,
              ", which may read and write tensors other than the inputs of the graph, so the "
              "graph cannot run as one op. Call the op outside the compiled code, or, if it "
              "always computes the same bits from the same arguments, name it in "
              "recoup.allow_replay");
  // A kernel in Python calls this op again, or another one.
  if (traits.random && !below.has(c10::DispatchKey::Python)) {
    draw(op, traits, below, *stack);
  } else {
    Hook::proceed(op, below, stack);
  }
}

void CompiledFrame::draw(const c10::OperatorHandle& op, const OpTraits& traits,
                         c10::DispatchKeySet below, torch::jit::Stack& stack) {
  const Unseen unseen;
  const std::size_t count = op.schema().arguments().size();
  // Keeps the arguments alive after the kernel has dropped them while the gate is held: with the
  // last reference to a tensor dies its Python object, which takes the GIL.
  const std::vector<c10::IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count),
                                           stack.end());
  const c10::Device device = device_of_draw(below, arguments);
  DrawTape& tape = call_.draws();
  if (const GeneratorState* const state = tape.next()) {
    draw_again(op, traits, below, device, *state, stack);
    return;
  }
  const auto generator = repeatable_generator(traits, below, device, stack, count);
  if (!generator) {
    call_.set_once();
    Hook::proceed(op, below, &stack);
    return;
  }
  GeneratorState before;
  GeneratorState after;
  {
    std::optional<Draw> draw;
    begin_draw(draw, traits, *generator, stack, count);
    before = draw->before();
    try {
      Hook::proceed(op, below, &stack);
    } catch (...) {
      draw->undo();
      throw;
    }
    after = std::make_shared<const SavedGenerator>(*generator);
  }
  tape.add(*generator, std::move(before), std::move(after));
}

}  // namespace recoup::detail
