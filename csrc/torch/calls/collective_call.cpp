#include "csrc/torch/calls/collective_call.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"
#include "recoup/bindings.h"

namespace recoup::detail {
namespace {

// On the CPU only: on a GPU the tensors have escaped.
void pin_held(const KernelFrame& frame, Work work) {
  const Visit visit;
  Session* const session = Sessions::on_cpu();
  if (session == nullptr) {
    return;
  }
  const EngineLock lock(session->mutex());
  session->wait_for_replays(lock);
  std::vector<PinTicket> pins;
  for (const StorageId storage : frame.held(*session, lock)) {
    pins.push_back(session->engine(lock).user().pin(storage));
  }
  if (work) {
    session->in_flight(lock).add(
        {.work = std::move(work), .pins = std::move(pins), .thread = std::this_thread::get_id()});
  }
}

bool may_return_work(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       return result.type()->kind() == c10::TypeKind::ClassType;
                     });
}

}  // namespace

CollectiveCall::~CollectiveCall() {
  if (!returned_) {
    try {
      pin_held(frame_, nullptr);
    } catch (const std::exception&) {
      // The kernel's own error is being thrown.
    }
  }
}

void CollectiveCall::returned(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (may_return_work(op.schema())) {
    const std::size_t count = op.schema().returns().size();
    pin_held(frame_, work_among(Arguments(stack.data() + (stack.size() - count), count)));
  }
  returned_ = true;
}

WaitCall::WaitCall(const KernelFrame& frame) {
  const Visit visit;
  if (Session* const session = Sessions::on_cpu()) {
    const EngineLock lock(session->mutex());
    for (const StorageId storage : frame.held(*session, lock)) {
      const auto works =
          session->in_flight(lock).waited_for(session->engine(lock).values().ticket(storage));
      works_.insert(works_.end(), works.begin(), works.end());
    }
  }
}

void WaitCall::returned() const {
  const Visit visit;
  if (Session* const session = works_.empty() ? nullptr : Sessions::on_cpu()) {
    session->land_dropped(works_);
  }
}

}  // namespace recoup::detail

namespace recoup {

void waited(const c10::intrusive_ptr_target* work) {
  const detail::Visit visit;
  if (detail::Session* const session = detail::Sessions::on_cpu()) {
    const detail::WorkId one[] = {work};
    session->land(one);
  }
}

}  // namespace recoup
