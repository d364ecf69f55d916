#include "csrc/engine/reports/live_timeline.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/engine/reports/holdings.h"

namespace recoup::detail {
namespace {

void note(std::vector<BytesAt>& line, Nanoseconds at, Bytes bytes) {
  if (line.empty() || line.back().bytes != bytes) {
    line.push_back({.at = at, .bytes = bytes});
  }
}

// Removes everything after `end` from a step.
void cut_off(LiveStep& step, Nanoseconds end) {
  const auto later = [end](const BytesAt& each) { return each.at > end; };
  std::erase_if(step.charged, later);
  std::erase_if(step.budgets, later);
  std::erase_if(step.moments, [end](const LiveMoment& each) { return each.start > end; });
  std::erase_if(step.spans, [end](const Span& span) { return span.begin >= end; });
  for (Span& span : step.spans) {
    span.end = std::min(span.end, end);
  }
  step.end = end;
}

}  // namespace

LiveTimeline::LiveTimeline(const Engine& engine, const MakerTable& makers, bool all)
    : engine_(engine), makers_(makers), all_(all), start_(std::chrono::steady_clock::now()) {
  note_charge(Nanoseconds(0));
}

bool LiveTimeline::full() const {
  return current_.spans.size() >= kMostSpans || current_.moments.size() >= kMostMoments ||
         current_.charged.size() >= kMostMoments;
}

void LiveTimeline::add(LiveMoment::Kind kind, MakerId maker, Nanoseconds cost, Bytes size,
                       Nanoseconds at) {
  const LiveMoment moment{.kind = kind,
                          .start = std::max(Nanoseconds(0), at - cost),
                          .cost = cost,
                          .size = size,
                          .charged = engine_.charged(),
                          .maker = maker,
                          .step = current_.number};
  if (all_) {
    if (moments_.size() == kMostMoments) {
      moments_.pop_front();
    }
    moments_.push_back(moment);
  }
  if (!current_.cut) {
    current_.moments.push_back(moment);
  }
  note_charge(at);
}

// Note [Spans] in live_timeline.h.
void LiveTimeline::note_charge(Nanoseconds at) {
  if (current_.cut) {
    return;
  }
  const Bytes charged = engine_.charged();
  if (held_ > charged) {
    look_at_values(at);
  }
  note(current_.charged, at, charged);
  note(current_.budgets, at, engine_.budget());
  if (full()) {
    close_all(at);
    current_.cut = true;
    current_.end = at;
  }
}

void LiveTimeline::close(Open& open, Nanoseconds at) {
  open.open = false;
  open.span.end = at;
  held_ -= open.span.size;
  current_.spans.push_back(open.span);
}

void LiveTimeline::close_all(Nanoseconds at) {
  for (Open& open : open_) {
    if (open.open) {
      close(open, at);
    }
  }
}

void LiveTimeline::look_at(ValueId id, Nanoseconds at) {
  if (id.index() >= open_.size()) {
    open_.resize(id.index() + 1);
  }
  Open& open = open_[id.index()];
  const Value& value = engine_.value(id);
  const MakerId maker = makers_.of(id);
  if (open.open && (open.span.maker != maker || open.span.size != value.size)) {
    close(open, at);  // its id belongs to another value now
  }
  if (!open.open) {
    open = {.open = true,
            .round = round_,
            .span = {.begin = at,
                     .size = value.size,
                     .maker = maker,
                     .source = !value.recomputable() || value.flags.from_nothing}};
    held_ += value.size;
  }
  open.round = round_;
  if (value.storage.valid()) {
    open.span.name = engine_.values()[value.storage].name;
  }
}

void LiveTimeline::look_at_values(Nanoseconds at) {
  if (current_.cut) {
    return;
  }
  ++round_;
  engine_.context().lineage.for_each_value([&](ValueId id, const Value& value) {
    if (has_charged_bytes(value)) {
      look_at(id, at);
    }
  });
  for (Open& open : open_) {
    if (open.open && open.round != round_) {
      close(open, at);
    }
  }
}

// Called right before the bytes of a value are freed.
void LiveTimeline::leave(ValueId id, Nanoseconds at) {
  note_charge(at);
  if (id.index() < open_.size() && open_[id.index()].open) {
    close(open_[id.index()], at);
  }
}

LiveStep LiveTimeline::finished(std::string_view name, Nanoseconds at) const {
  LiveStep step = current_;
  step.name = name;
  step.end = step.cut ? step.end : at;
  step.budget = engine_.budget();
  for (const Open& open : open_) {
    if (open.open) {
      step.spans.push_back(open.span);
      step.spans.back().end = at;
    }
  }
  return step;
}

LiveStep LiveTimeline::step() const { return last_ ? *last_ : finished({}, now()); }

std::optional<LiveStep> LiveTimeline::refused_step() const {
  if (!refused_) {
    return std::nullopt;
  }
  LiveStep step = finished({}, now());
  if (*refused_ < step.end) {
    cut_off(step, *refused_);
  }
  return step;
}

void LiveTimeline::on_step(std::string_view name) {
  const Nanoseconds at = now();
  look_at_values(at);
  add(LiveMoment::Kind::kStep, MakerId(), Nanoseconds(0), Bytes(0), at);
  last_ = finished(name, at);
  for (Open& open : open_) {
    open.span.begin = at;
  }
  current_ = {};
  current_.number = last_->number + 1;
  current_.begin = at;
  refused_.reset();
  if (last_->cut) {
    look_at_values(at);
  }
  note_charge(at);
}

void LiveTimeline::on_allocate(BlockId /*block*/, Bytes /*nbytes*/) { note_charge(now()); }

void LiveTimeline::on_external(StorageId /*storage*/, const OutsideStorage& /*outside*/) {
  note_charge(now());
}

// The bytes of the storage may be freed earlier or later than this: the next event notes it.
void LiveTimeline::on_death(StorageId /*storage*/) { note_charge(now()); }

void LiveTimeline::on_peak() { note_charge(now()); }

void LiveTimeline::on_op_begin(std::string_view /*name*/, std::span<const Operand> /*operands*/) {
  const Nanoseconds at = now();
  look_at_values(at);
  note_charge(at);
}

void LiveTimeline::on_op_end(const OpRecord& record, std::span<const Operand> /*operands*/,
                             std::span<const StorageId> /*fresh*/) {
  const Nanoseconds at = now();
  look_at_values(at);
  add(LiveMoment::Kind::kOp, makers_.running(), record.cost, Bytes(0), at);
}

void LiveTimeline::on_op_failed(const KernelLimits& /*limits*/) {
  const Nanoseconds at = now();
  look_at_values(at);
  note_charge(at);
}

void LiveTimeline::on_out_of_budget(const OutOfBudgetReport& /*report*/) {
  const Nanoseconds at = now();
  look_at_values(at);
  note_charge(at);
  refused_ = at + Nanoseconds(1);  // includes spans that begin at this instant
}

void LiveTimeline::on_evict(ValueId value) {
  const Nanoseconds at = now();
  leave(value, at);
  add(LiveMoment::Kind::kEvict, makers_.of(value), Nanoseconds(0), engine_.value(value).size, at);
}

void LiveTimeline::on_spill(ValueId value) {
  const Nanoseconds at = now();
  leave(value, at);
  add(LiveMoment::Kind::kSpill, makers_.of(value), Nanoseconds(0), engine_.value(value).size, at);
}

// The value owns a block of the pool right after this.
void LiveTimeline::on_fetch(ValueId value) {
  const Nanoseconds at = now();
  if (!current_.cut) {
    look_at(value, at);
  }
  add(LiveMoment::Kind::kFetch, makers_.of(value), Nanoseconds(0), engine_.value(value).size, at);
}

void LiveTimeline::on_move(ValueId value, PoolOffset /*to*/) {
  add(LiveMoment::Kind::kMove, makers_.of(value), Nanoseconds(0), engine_.value(value).size, now());
}

void LiveTimeline::on_replay(std::string_view /*name*/, OpId id, const Op& op) {
  const Nanoseconds at = now();
  if (!current_.cut) {
    engine_.context().lineage.for_each_output(id, [&](ValueId output) {
      if (has_charged_bytes(engine_.value(output))) {
        look_at(output, at);
      }
    });
  }
  add(LiveMoment::Kind::kReplay, makers_.of(id), op.cost, Bytes(0), at);
}

void LiveTimeline::check() const {
  Bytes held{0};
  for (const Open& open : open_) {
    held += open.open ? open.span.size : Bytes(0);
  }
  RECOUP_CHECK(held == held_, held.count(), " in open spans, counted ", held_.count());
}

}  // namespace recoup::detail
