// How OpCall runs a kernel that does not fit: once more with compact memory, with a result in place
// of an operand, and with paged results.
#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/torch/calls/op_call.h"

namespace recoup::detail {

void OpCall::run_until_it_fits() {
  if (session_.in_place() && prepare_in_place(std::nullopt)) [[unlikely]] {
    OutOfBudgetReport report;
    report.op = traits_.name;
    report.reason = Handover::kNotTaken;
    run_in_place(report);
    return;
  }
  const Paging::Rules rules = session_.paging_rules();
  const Paging at_first = Paging::at_first(rules, limits_);
  if (at_first.when != Paging::When::kNever) [[unlikely]] {
    run_kernel_paged(at_first);
    return;
  }
  Retry retry;
  for (;;) {
    OutOfBudgetReport report;
    try {
      run_kernel();
      return;
    } catch (const PoolOutOfMemory& error) {
      limits_.once |= is_once();  // a graph may say so while it runs
      if (!error.is_of(&session_) || limits_.once) {
        undo_draws();
        throw;
      }
      report = error.report();
    }
    if (retry.worth_it(report)) {
      prepare_retry(retry);
      continue;
    }
    if (prepare_in_place(report.asked)) {
      run_in_place(report);
      return;
    }
    if (const auto paging = at_first.after(rules, limits_, report.asked)) {
      run_paged(*paging);
      return;
    }
    undo_draws();
    throw PoolOutOfMemory(std::move(report), &session_);
  }
}

void OpCall::undo_draws() {
  if (traits_.compiled) {
    compiled_call(operands_.arguments()).draws().undo();
  }
}

// False: no operand's block can be taken.
bool OpCall::prepare_in_place(std::optional<Bytes> asked) {
  return may_be_in_place() && in_place_.prepare(operands_, asked, stack_, base_);
}

// `report`: why the op did not fit otherwise.
void OpCall::run_in_place(const OutOfBudgetReport& report) {
  run_kernel();
  if (!in_place_.is_right(on_stack())) {
    stack_.resize(base_);
    throw PoolOutOfMemory(report, &session_);
  }
}

// A kernel that ran out of memory may have written a part of its outputs, and running it again on
// those may give other results. It may also have drawn random numbers, which it must draw again, or
// have changed the sizes of an `out` without getting memory for it.
KernelLimits OpCall::find_limits() const {
  const auto draws_once = [this] {
    return traits_.random &&
           !repeatable_generator(traits_, keys_, session_.device(), stack_, argument_count_);
  };
  return {.pageable = pageable(),
          .once = Paging::writes(operands_.all()) || traits_.outs != 0 || draws_once()};
}

bool OpCall::is_once() const {
  return traits_.compiled && compiled_call(operands_.arguments()).once();
}

void OpCall::prepare_retry(Retry& retry) {
  put_arguments_back();
  const EngineLock lock(session_.mutex());
  session_.wait_for_replays(lock);
  left_out_before_.restore();
  left_out_before_.drop(session_, lock);  // the copies may move
  retry.all_tried = !session_.engine(lock).op().retry(operands_.all(), retry.need);
  save_left_out(lock);
  if (session_.can().streams) {
    timing_.begin_again(*session_.backend(lock).times());
  }
}

void OpCall::put_arguments_back() {
  stack_.resize(base_);
  const Arguments arguments = operands_.arguments();
  std::transform(arguments.begin(), arguments.end(), std::back_inserter(stack_), &own_copy);
}

void OpCall::run_kernel_paged(const Paging& paging) {
  const PagedResults results({.paging = paging,
                              .directory = session_.page_directory(),
                              .charge = [this] { session_.charge_page_window(); },
                              .freed =
                                  [this](PageKey page, Bytes size) {
                                    const EngineLock lock(session_.mutex());
                                    session_.memory().unpage(page, size, lock);
                                  }});
  run_kernel();
  paged_ = results.used();
}

void OpCall::run_paged(Paging paging) {
  for (;;) {
    put_arguments_back();
    {
      const EngineLock lock(session_.mutex());
      session_.wait_for_replays(lock);
      left_out_before_.restore();
      left_out_before_.drop(session_, lock);
      session_.engine(lock).op().begin_paged_run();
      save_left_out(lock);
    }
    try {
      run_kernel_paged(paging);
      return;
    } catch (const PoolOutOfMemory& error) {
      const auto more = paging.after(session_.paging_rules(), limits_, error.report().asked);
      if (!error.is_of(&session_) || !more) {
        undo_draws();
        throw;
      }
      paging = *more;
    }
  }
}

}  // namespace recoup::detail
