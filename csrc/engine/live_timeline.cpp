#include "csrc/engine/live_timeline.h"

#include <algorithm>
#include <utility>

namespace recoup::detail {

LiveTimeline::LiveTimeline(const Engine& engine, const MakerTable& makers, bool all)
    : engine_(engine), makers_(makers), all_(all), start_(std::chrono::steady_clock::now()) {}

void LiveTimeline::add(LiveMoment::Kind kind, MakerId maker, Nanoseconds cost, Bytes size) {
  const LiveMoment moment{.kind = kind,
                          .start = std::max(Nanoseconds(0), now() - cost),
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
  if (current_.moments.size() < kMostMoments) {
    current_.moments.push_back(moment);
  } else {
    current_.cut = true;
  }
  add_charged();
}

void LiveTimeline::add_charged() {
  const Bytes charged = engine_.charged();
  if (!current_.charged.empty() && current_.charged.back().charged == charged) {
    return;
  }
  if (current_.charged.size() < kMostMoments) {
    current_.charged.push_back({.at = now(), .charged = charged});
  } else {
    current_.cut = true;
  }
}

void LiveTimeline::close(Open& open, Nanoseconds at) {
  open.open = false;
  open.span.end = at;
  if (current_.spans.size() < kMostSpans) {
    current_.spans.push_back(open.span);
  } else {
    current_.cut = true;
  }
}

void LiveTimeline::look_at(ValueId id, const Value& value, Nanoseconds at) {
  if (id.index() >= open_.size()) {
    open_.resize(id.index() + 1);
  }
  Open& open = open_[id.index()];
  const MakerId maker = makers_.of(id);
  if (open.open && (open.span.maker != maker || open.span.size != value.size)) {
    close(open, at);  // another one has its id now
  }
  if (!open.open) {
    open = {.open = true,
            .round = round_,
            .span = {.begin = at,
                     .size = value.size,
                     .maker = maker,
                     .leaf = value.leaf() || value.from_nothing}};
  }
  open.round = round_;
  if (value.storage.valid()) {
    open.span.name = engine_.values()[value.storage].name;
  }
}

// Note [Spans]
void LiveTimeline::look_at_values() {
  const Nanoseconds at = now();
  ++round_;
  engine_.context().lineage.for_each_value([&](ValueId id, const Value& value) {
    if (value.block.valid() || value.external != nullptr) {
      look_at(id, value, at);
    }
  });
  for (Open& open : open_) {
    if (open.open && open.round != round_) {
      close(open, at);
    }
  }
}

LiveStep LiveTimeline::finished(std::string_view name, Nanoseconds at) const {
  LiveStep step = current_;
  step.name = name;
  step.end = at;
  step.budget = engine_.options().budget;
  for (const Open& open : open_) {
    if (open.open && step.spans.size() < kMostSpans) {
      step.spans.push_back(open.span);
      step.spans.back().end = at;
    }
  }
  return step;
}

LiveStep LiveTimeline::step() const { return last_ ? *last_ : finished({}, now()); }

void LiveTimeline::on_step(std::string_view name) {
  add(LiveMoment::Kind::kStep, MakerId(), Nanoseconds(0), Bytes(0));
  look_at_values();
  const Nanoseconds at = now();
  last_ = finished(name, at);
  for (Open& open : open_) {
    open.span.begin = at;
  }
  current_ = {};
  current_.number = last_->number + 1;
  current_.begin = at;
  add_charged();
}

void LiveTimeline::on_allocate(BlockId /*block*/, Bytes /*nbytes*/) { add_charged(); }

void LiveTimeline::on_external(StorageId /*storage*/, Bytes /*nbytes*/) { add_charged(); }

// What it held may be gone already, or go now: the next op tells.
void LiveTimeline::on_death(StorageId /*storage*/) { add_charged(); }

void LiveTimeline::on_op_begin(std::string_view /*name*/, std::span<const Operand> /*operands*/) {
  look_at_values();
  add_charged();
}

void LiveTimeline::on_op_end(const OpRecord& record, std::span<const Operand> /*operands*/,
                             std::span<const StorageId> /*fresh*/) {
  look_at_values();
  add(LiveMoment::Kind::kOp, makers_.running(), record.cost, Bytes(0));
}

void LiveTimeline::on_evict(ValueId value) {
  if (value.index() < open_.size() && open_[value.index()].open) {
    close(open_[value.index()], now());
  }
  add(LiveMoment::Kind::kEvict, makers_.of(value), Nanoseconds(0), engine_.value(value).size);
}

void LiveTimeline::on_spill(ValueId value) {
  add(LiveMoment::Kind::kSpill, makers_.of(value), Nanoseconds(0), engine_.value(value).size);
}

void LiveTimeline::on_fetch(ValueId value) {
  add(LiveMoment::Kind::kFetch, makers_.of(value), Nanoseconds(0), engine_.value(value).size);
}

void LiveTimeline::on_move(ValueId value, PoolOffset /*to*/) {
  add(LiveMoment::Kind::kMove, makers_.of(value), Nanoseconds(0), engine_.value(value).size);
}

void LiveTimeline::on_replay(std::string_view /*name*/, OpId id, const Op& op) {
  add(LiveMoment::Kind::kReplay, makers_.of(id), op.cost, Bytes(0));
}

}  // namespace recoup::detail
