#include "csrc/torch/calls/live_kernel.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/torch/backend/uncaptured_stream.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/hook.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/compat/settings.h"
#include "csrc/torch/ops/compiled_call.h"
#include "csrc/torch/ops/draw_tape.h"
#include "csrc/torch/ops/draws.h"
#include "csrc/torch/ops/tick_clock.h"
#include "csrc/torch/overflow/overflow_results.h"

namespace recoup::detail {

// A kernel that ran out of memory may have written a part of its outputs, and running it again on
// those may give other results. It may also have drawn random numbers, which it must draw again, or
// have changed the sizes of an `out` without getting memory for it.
void LiveKernel::find_limits() {
  const auto draws_once = [this] {
    return call_.traits.random && !repeatable_generator(call_.traits, call_.keys, session_.device(),
                                                        call_.stack, call_.argument_count);
  };
  limits_ = {.may_overflow = session_.device().is_cpu() && !call_.traits.compiled && alone(),
             .once = writes_uncopied(operands_.all()) || call_.traits.outs != 0 || draws_once()};
}

KernelLimits LiveKernel::limits() const {
  return {.may_overflow = limits_.may_overflow, .once = limits_.once || is_once()};
}

bool LiveKernel::is_once() const {
  return call_.traits.compiled && compiled_call(operands_.arguments()).once();
}

void LiveKernel::begin(const EngineLock& lock) {
  try {
    save_left_out(lock);
    if (session_.can().streams) {
      timing_.emplace();
      timing_->begin(*session_.backend(lock).times(), session_.engine(lock), call_.traits,
                     operands_.all(), session_.observers().recording());
    }
  } catch (...) {
    left_out_before_.drop(session_, lock);
    throw;
  }
}

void LiveKernel::save_left_out(const EngineLock& lock) {
  if (call_.traits.left_out == 0) [[likely]] {
    return;
  }
  for (const Operand& operand : operands_.all()) {
    if (operand.left_out && operand.storage.valid()) {
      left_out_before_.add(impl_of(operand), session_, lock);
    }
  }
}

std::uint32_t LiveKernel::end(const EngineLock& lock) noexcept {
  const std::uint32_t copies = left_out_before_.in_pool();
  left_out_before_.drop(session_, lock);
  return copies;
}

void LiveKernel::fail(const EngineLock& lock) noexcept {
  left_out_before_.restore();
  left_out_before_.drop(session_, lock);
  if (timing_) {
    timing_->cancel(*session_.backend(lock).times());
  }
}

void LiveKernel::run_in_budget() {
  if (std::optional<OutOfBudgetReport> failure = session_.attempts().run(*this)) {
    undo_draws();
    call_.clear_stack();
    throw PoolOutOfMemory(std::move(*failure), &session_);
  }
}

std::optional<OutOfBudgetReport> LiveKernel::run(const Attempt& attempt) {
  try {
    if (!attempt.may_overflow()) [[likely]] {
      run_kernel();
    } else {
      run_overflowing(attempt);
    }
  } catch (const PoolOutOfMemory& error) {
    if (!error.is_of(&session_)) {
      undo_draws();
      throw;
    }
    return error.report();
  }
  if (attempt.in_place && !in_place_.is_right(call_.on_stack())) {
    call_.clear_stack();
    OutOfBudgetReport report;
    report.op = call_.traits.name;
    report.reason = Handover::kNotTaken;
    return report;
  }
  return std::nullopt;
}

bool LiveKernel::prepare(const Attempt& next, const std::function<bool()>& measure) {
  put_arguments_back();
  const EngineLock lock(session_.mutex());
  session_.wait_for_replays(lock);
  left_out_before_.restore();
  left_out_before_.drop(session_, lock);  // the copies may move
  if (!begin_again(measure, session_.engine(lock).op())) {
    return false;
  }
  if (next.in_place) {
    in_place_.put_operand(call_, operands_, lock);
  }
  save_left_out(lock);
  if (timing_) {
    timing_->begin_again(*session_.backend(lock).times());
  }
  return true;
}

std::vector<ValueId> LiveKernel::overwritable() {
  if (!may_be_in_place_) {
    return {};
  }
  operands_.find_overwritable();
  return ProgramKernel::overwritable();
}

void LiveKernel::put_arguments_back() {
  call_.clear_stack();
  const Arguments arguments = operands_.arguments();
  std::transform(arguments.begin(), arguments.end(), std::back_inserter(call_.stack), &own_copy);
}

void LiveKernel::undo_draws() {
  if (call_.traits.compiled) {
    compiled_call(operands_.arguments()).draws().undo();
  }
}

void LiveKernel::run_overflowing(const Attempt& attempt) {
  const OverflowResults results(attempt, session_.overflow(), [this](OverflowKey key, Bytes size) {
    const EngineLock lock(session_.mutex());
    session_.memory().free_overflow(key, size, lock);
  });
  run_kernel();
  overflows_ = results.used();
}

void LiveKernel::run_kernel() {
  std::optional<Draw> draw;
  if (call_.traits.random) {
    keep_draw(draw);
  }
  const TickClock::Ticks start = TickClock::now();
  try {
    run_without_failure();
  } catch (const PoolOutOfMemory&) {
    if (draw) {
      draw->undo();
    }
    throw;
  }
  cost_ = TickClock::between(start, TickClock::now());
  if (draw && session_.memory().capturing() && !draw->has_advanced()) {
    why_ = NoReplay::kDraw;  // in older versions the offset is not that within the graph
    random_ = nullptr;
  }
}

// Note [Caught errors]
void LiveKernel::run_without_failure() {
  const OpTraits& traits = call_.traits;
  CaughtFailure caught(traits.own_kernel ? nullptr : &Settings::current(session_.device().type()));
  CaughtFailure& of_workers = session_.tensors().failure_of_workers();
  try {
    const FailureNoted noted(caught);
    run_below();
  } catch (const KernelOutOfMemory& error) {
    if (!caught.noted()) {
      throw error.plain();  // of another session
    }
  } catch (...) {
    if (traits.compiled || (!caught.noted() && !of_workers.noted())) {
      throw;  // a graph may handle an error, and its errors have texts of their own
    }
  }
  if (caught.noted() || of_workers.noted()) [[unlikely]] {
    call_.clear_stack();
    if (!traits.random) {  // a draw may hold a generator's lock
      caught.restore_settings();
    }
    throw PoolOutOfMemory(caught.noted() ? caught.take() : of_workers.take(), &session_);
  }
}

void LiveKernel::keep_draw(std::optional<Draw>& draw) {
  const auto generator = repeatable_generator(call_.traits, call_.keys, session_.device(),
                                              call_.stack, call_.argument_count);
  if (!generator || (session_.memory().capturing() && !may_draw_in_capture(*generator))) {
    why_ = NoReplay::kDraw;
    random_ = nullptr;
    return;
  }
  begin_draw(draw, call_.traits, *generator, call_.stack, call_.argument_count);
  random_ = draw->before();
}

void LiveKernel::run_below() {
  const Unseen unseen;
  if (alone()) [[likely]] {
    std::optional<UncapturedStream> on;
    if (uncaptured_) {
      on.emplace(UncapturedStream::Known{.stream = *uncaptured_, .memory = &session_.memory()});
    }
    Hook::proceed(call_.op, call_.keys, &call_.stack);
  } else {
    run_in_others_(call_, others_);
  }
}

}  // namespace recoup::detail
