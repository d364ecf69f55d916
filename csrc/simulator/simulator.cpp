#include "csrc/simulator/simulator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "csrc/base/check.h"

namespace recoup::detail {

using EventKind = TraceEvent::Kind;

namespace {

// Note [Replays that cost nothing]
// The limit for the time ratio ends a run whose replays cost too much. But costs may be 0, because
// a log may contain any costs, and ops of cost 0 could be replayed endlessly, even for one argument
// of one op. So the number of replays is limited, too, and clocks are limited by their 64 bits.
constexpr double kReplaysAnOp = 100;  // for each 1 of the ratio; the slowest runs that fit have 20
constexpr Nanoseconds kNoLimit{std::int64_t{1} << 61};

struct TooSlow {};

Options engine_options(Options options) {
  if (options.policy == "unbounded") {
    options.budget = kUnbounded;
  }
  return options;
}

}  // namespace

Simulator::Simulator(const Trace& trace, const SimulationOptions& options, Observer* observer,
                     Bytes schedule_budget)
    : trace_(trace),
      options_(options),
      most_cost_(kNoLimit),
      engine_(std::in_place, engine_options(options.engine), static_cast<Device&>(*this)),
      kernels_(trace, *engine_, [this] { charge_window(options_.engine.page_window); }) {
  if (const ScheduleKind kind = find_policy(options.engine.policy).schedule;
      kind != ScheduleKind::kNone) {
    runner_.emplace(*engine_, kind,
                    schedule_budget > Bytes(0) ? schedule_budget : options.engine.budget);
    engine_->set_schedule(&*runner_);
  }
  observe(observer);
  if (options.noise) {
    if (options.engine.cost_model != CostModel::kMeasured) {
      throw std::invalid_argument("noise needs measured costs: leave out cost_model='bytes'");
    }
    noise_.emplace(*options.noise, trace);
  }
  if (engine_->looks_ahead()) {
    uses_.emplace(trace);
    engine_->set_future(&*uses_);
  }
}

Simulator::~Simulator() = default;

void Simulator::observe(Observer* first, Observer* second) {
  observers_ = {runner_ ? &*runner_ : nullptr, first, second};
  observer_ = runner_ || second != nullptr ? &observers_ : first;
  engine_->set_observer(observer_);
}

ScheduleRunner::Plans Simulator::take_plans() {
  runner_->end_step();
  return runner_->take_plans();
}

void Simulator::begin_in(StartingPool pool) {
  starting_pool_ = std::move(pool);
  engine_->set_running_op({});
  try {
    fill_tier();
  } catch (const OutOfBudget&) {
    tier_filled_ = false;
  }
  spill_cost_before_ = engine_->counters().spill_cost_ns;
}

// Content that is in the spill tier before the program begins is spilled one by one, while the pool
// is empty.
void Simulator::fill_tier() {
  std::vector<Bytes> sizes;  // of blocks that the program allocates outside of ops
  for (const TraceEvent& event : trace_.events) {
    if (event.kind == EventKind::kOp) {
      break;
    }
    if (event.kind == EventKind::kAllocate && event.index == 0) {
      sizes.push_back(event.size);
    } else if (event.kind == EventKind::kAdopt && starting_pool_.tier.is_spilled(event.index)) {
      const BlockId block = engine_->allocate(sizes[event.index]);
      const StorageId id = engine_->adopt(content(block, event.size));
      tier_filled_ &= engine_->user().evict(id);
      first_spilled_.emplace(event.index, id);
    }
  }
}

void Simulator::fill_pool() {
  engine_->set_running_op({});
  if (trace_.device.bounces) {
    (void)engine_->reserve_bounce();
  }
  for (const StartingPool::Place& place : starting_pool_.others) {
    (void)engine_->allocate(place.size, place.offset);
  }
  for (const std::optional<StartingPool::Place>& place : starting_pool_.blocks) {
    const bool spilled = first_spilled_.contains(static_cast<std::uint32_t>(first_blocks_.size()));
    first_blocks_.push_back(place && !spilled ? engine_->allocate(place->size, place->offset)
                                              : BlockId());
  }
  // After the blocks: charges outside move the end of the pool, and a block may lie beyond.
  if (unseen_ > Bytes(0)) {
    (void)engine_->user().pin(engine_->add_external(&unseen_, unseen_, Engine::Charge::kWindow));
  }
  if (first_window_ > Bytes(0)) {
    charge_window(first_window_);
  }
}

SimulationResult Simulator::run() {
  SimulationResult result;
  if (!tier_filled_) {
    result.status = SimulationResult::Status::kOutOfBudget;
    return result;
  }
  try {
    fill_pool();
    for (event_ = 0; event_ < trace_.events.size(); ++event_) {
      const TraceEvent& event = trace_.events[event_];
      apply(event);
      if (event.kind == EventKind::kOp && too_slow()) {
        result.status = SimulationResult::Status::kTooSlow;
        break;
      }
    }
  } catch (const OutOfBudget& error) {
    result.status = SimulationResult::Status::kOutOfBudget;
    result.reason = error.report().headline();
  } catch (const TooSlow&) {
    result.status = SimulationResult::Status::kTooSlow;
  }
  result.stats = engine_->stats();
  result.ops = static_cast<std::int64_t>(op_);
  result.plain_cost = plain_;
  result.replay_cost = replay_cost();
  result.spill_cost = spill_cost();
  return result;
}

Nanoseconds Simulator::replay_cost() const {
  return noise_ ? replayed_ : Nanoseconds(engine_->counters().replay_cost_ns);
}

Nanoseconds Simulator::spill_cost() const {
  return Nanoseconds(engine_->counters().spill_cost_ns - spill_cost_before_);
}

bool Simulator::too_slow() const {
  const bool slower = options_.max_time_ratio > 0 &&
                      static_cast<double>(replay_cost().count()) >
                          (options_.max_time_ratio - 1) * static_cast<double>(plain_.count());
  return slower || replay_cost() + spill_cost() > most_cost_;
}

void Simulator::count_replay() {
  ++replays_;
  const bool bounded = options_.max_time_ratio > 0;
  const double most = kReplaysAnOp * options_.max_time_ratio * static_cast<double>(op_ + 1);
  if ((bounded && static_cast<double>(replays_) > most) || replay_cost() > most_cost_) {
    throw TooSlow();
  }
}

// A storage of size 0 stands for a tensor over memory of the pool that has another owner. It
// escapes at once. In the trace its event comes after the ops that ran in the meantime.
// The event is the storage's handle, which tells it from others.
void Simulator::add_external(const TraceEvent& event) {
  engine_->set_running_op("a tensor made outside the scope");
  // On the CPU nothing is in use before the run: the storage is in overflow memory.
  if (event.index == 1 && window_.size() == Bytes(0) && trace_.device.window > Bytes(0)) {
    charge_window(trace_.device.window);
  }
  const auto charge = event.index == 0 ? Engine::Charge::kNow : Engine::Charge::kAmongOutside;
  const SegmentId segment = event.index > 1 ? SegmentId(event.index - 2) : SegmentId();
  const StorageId id =
      engine_->add_external(const_cast<TraceEvent*>(&event), event.size, charge, segment);
  add_storage(id);
  if (event.size == Bytes(0)) {
    engine_->user().escape(id);
  }
}

// The content of a storage, whose block a replay allocates. No allocator of PyTorch makes a block
// much larger than its content; in such a trace the content is taken to fill the block.
FreshStorage Simulator::content(BlockId block, Bytes nbytes) {
  const Bytes size = engine_->pool().size(block);
  const bool fills = size - nbytes < options_.engine.alignment;
  return {.block = block, .nbytes = fills ? nbytes : size, .handle = this};
}

void Simulator::adopt(std::uint32_t block, Bytes nbytes) {
  if (const auto spilled = first_spilled_.find(block); spilled != first_spilled_.end()) {
    add_storage(spilled->second);
    return;
  }
  if (!blocks_[block].valid()) {  // in overflow memory
    add_storage(engine_->add_external(&blocks_[block], nbytes, Engine::Charge::kAmongOutside));
    return;
  }
  FreshStorage fresh = content(blocks_[block], nbytes);
  const auto& places = starting_pool_.blocks;
  fresh.placed = block < places.size() && places[block] && places[block]->placed;
  const StorageId id = engine_->adopt(fresh);
  add_storage(id);
  if (starting_pool_.tier.is_clean(block)) {
    const std::int64_t before = engine_->counters().spill_cost_ns;
    engine_->save(id);
    spill_cost_before_ += engine_->counters().spill_cost_ns - before;
  }
}

// The storage has other bytes now. If an evicted value was computed from the old ones, a live run
// throws. A result that overflowed in the recorded run may be in the pool here: this is its end.
void Simulator::disown(StorageId storage) {
  if (engine_->value(engine_->current(storage)).external == nullptr) {
    engine_->storage_died(storage);
    return;
  }
  if (engine_->user().has_needed_dependents(storage)) {
    OutOfBudgetReport report;
    report.op = "a tensor whose memory was replaced";
    report.budget = engine_->budget();
    report.reason = "an evicted tensor must be recomputed from its old content";
    throw OutOfBudget(std::move(report));
  }
  engine_->disown_external(storage);
}

void Simulator::allocate(const TraceEvent& event) {
  if (event.index > 0) {
    blocks_.push_back(kernels_.take(event.index - 1));  // invalid: overflow memory
    return;
  }
  engine_->set_running_op({});
  if (first_spilled_.contains(static_cast<std::uint32_t>(blocks_.size()))) {
    blocks_.emplace_back();
    return;
  }
  const bool known = blocks_.size() < first_blocks_.size() && first_blocks_[blocks_.size()].valid();
  blocks_.push_back(known ? first_blocks_[blocks_.size()] : engine_->allocate(event.size));
}

void Simulator::apply(const TraceEvent& event) {
  switch (event.kind) {
    case EventKind::kExternal:
      add_external(event);
      break;
    case EventKind::kSegment:
      engine_->set_segment({.segment = SegmentId(event.index), .returnable = event.size});
      break;
    case EventKind::kAllocate:
      allocate(event);
      break;
    case EventKind::kFree:
      if (blocks_[event.index].valid()) {
        engine_->free(blocks_[event.index]);
      }
      break;
    case EventKind::kAdopt:
      adopt(event.index, event.size);
      break;
    case EventKind::kDie:
      engine_->storage_died(storages_[event.index]);
      break;
    case EventKind::kOp:
      run_op(trace_.ops[event.index]);
      break;
    case EventKind::kEscape:
      engine_->user().escape(storages_[event.index]);
      break;
    case EventKind::kEscapeEnd:
      engine_->user().end_escape(storages_[event.index]);
      break;
    case EventKind::kLeave:
      engine_->user().leave_pool(storages_[event.index]);
      break;
    case EventKind::kRule:
      engine_->user().set_rule(storages_[event.index],
                               static_cast<StorageRule>(event.size.count()));
      break;
    case EventKind::kPin:
      pins_[event.index].push_back(engine_->user().pin(storages_[event.index]));
      break;
    case EventKind::kUnpin:
      if (std::vector<PinTicket>& pins = pins_[event.index]; !pins.empty()) {
        engine_->user().unpin(pins.back());
        pins.pop_back();
      }
      break;
    case EventKind::kEvict:
      (void)engine_->user().evict(storages_[event.index]);
      break;
    case EventKind::kPart:
      engine_->in_parts().detach(storages_[event.index]);
      break;
    case EventKind::kParts:
      begin_parts(trace_.list_ops[event.index]);
      break;
    case EventKind::kPartsEnd:
      end_parts();
      break;
    case EventKind::kDisown:
      disown(storages_[event.index]);
      break;
    case EventKind::kStep:
      end_step(trace_.names[event.index]);
      break;
    case EventKind::kTime:
      break;
    case EventKind::kScopeExit:
      engine_->user().materialize_all();
      break;
    case EventKind::kPlan:
      take_recorded(trace_.plans[event.index]);
      break;
  }
}

void Simulator::end_step(std::string_view name) {
  if (observer_ != nullptr) {
    observer_->on_step(name);
  }
}

void Simulator::take_recorded(const TracePlan& plan) {
  VictimPlan* const planned = engine_->context().victim_plan;
  if (planned == nullptr) {
    return;
  }
  TracePlanLists lists = trace_.lists_of(plan);
  // The engine's numbers instead of the trace's.
  std::vector<TraceStart> starts(lists.starts.begin(), lists.starts.end());
  for (TraceStart& start : starts) {
    if (start.storage > 0) {
      start.storage = storages_[start.storage - 1].index() + 1;
    }
  }
  std::vector<TraceEviction> evictions(lists.evictions.begin(), lists.evictions.end());
  std::vector<TraceBlock> blocks(lists.blocks.begin(), lists.blocks.end());
  const auto number = [this](auto& each) {
    if (each.op == TraceEviction::kStorage) {
      each.slot = storages_[each.slot].index();
    }
  };
  std::ranges::for_each(evictions, number);
  std::ranges::for_each(blocks, number);
  lists = {.evictions = evictions, .blocks = blocks, .starts = starts};
  planned->on_recorded(plan, lists);
}

void Simulator::add_storage(StorageId id) {
  storages_.push_back(id);
  if (uses_) {
    uses_->add_storage(id);
  }
}

// Note [Parts in a simulation]
// The engine receives the same requests as in the run, so with the same budget it decides the same.
// With another budget it may decide otherwise. But the trace contains only the alternative that was
// taken: the memory use of the kernels of the other one is unknown. So the recorded alternative
// runs, with the decisions of the engine:
//
// - parts run even if they are not certain to fit, and no room is held for them. If one does not
//   fit, the run is out of budget. In a live run the op as a whole would have needed more.
// - an op that ran as a whole does so even if its parts would have fitted. The end of its parts
//   precedes it, so the room held for them is released. In a live run the parts would have needed
//   less.
// - if not even the largest part fits, the run ends, as with any op.
void Simulator::begin_parts(const TraceListOp& op) {
  std::vector<Part> parts;
  for (const TracePart& each : trace_.parts_of(op)) {
    Part& part = parts.emplace_back();
    part.workspace = each.workspace;
    for (const TracePartOperand& operand : trace_.operands_of(each)) {
      part.operands.push_back({.storage = storages_[operand.storage], .written = operand.written});
    }
  }
  engine_->set_running_op(trace_.names[op.name]);
  in_parts_ = engine_->in_parts().begin(parts);
}

void Simulator::end_parts() {
  if (std::exchange(in_parts_, false)) {
    engine_->in_parts().end();
  }
}

bool Simulator::may_overwrite(const void* payload, std::size_t input) const {
  for (const TraceOperand& operand : trace_.operands_of(*static_cast<const TraceOp*>(payload))) {
    if (operand.reads && input-- == 0) {
      return operand.overwritable;
    }
  }
  return false;
}

std::size_t Simulator::payload_bytes(const void* payload) const noexcept {
  return static_cast<std::size_t>(static_cast<const TraceOp*>(payload)->record_bytes.count());
}

std::string Simulator::name(const void* payload) const {
  return trace_.names[static_cast<const TraceOp*>(payload)->name];
}

}  // namespace recoup::detail
