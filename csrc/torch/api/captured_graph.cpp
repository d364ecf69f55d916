// Captures of CUDA graphs within a budget.
#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "csrc/base/strings.h"
#include "csrc/engine/base/op.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/scope_thread.h"
#include "csrc/torch/gpu/gpus.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"
#include "csrc/torch/storages/request.h"
#include "recoup/bindings.h"

namespace recoup {

// Note [Captured graphs]
// ~~~~~~~~~~~~~~~~~~~~~~
// While a program captures a CUDA graph, the engine works as always: evictions, replays and moves
// become nodes of the graph, in the order in which the engine makes them. Each launch of the graph
// uses the addresses of the capture.
//
//   begin     Every live storage becomes resident and non-recomputable, and is pinned, next to the
//             others. The host waits for the device. No kernel runs from now on, so no op is timed.
//   close     Within the capture, every live storage becomes resident again.
//   end       The graph owns all memory that it has accessed: it holds the storages there, pinned,
//             and the free ranges become blocks of the graph. The end counts as a launch.
//   replay    A launch is an op of the program that reads and writes all storages of the graph.
//   release   The graph is gone.
//
// A launch of a graph that was captured outside of the scope is an op that reads and writes all
// storages outside of the pool.
//
// So no value is recomputed from values of the other side of the capture's begin or end, and a
// replay of an op within the capture draws the numbers of an offset within the graph:
// SavedGenerator. The budget bounds the graph, since the graph's memory stays charged.

using detail::AddressRange;
using detail::EngineLock;
using detail::Session;
using detail::Sessions;

namespace {

constexpr std::string_view kName = "CUDA graph";

using LiveStorages = std::vector<std::pair<StorageId, detail::StoragePtr>>;

LiveStorages live_storages(Session& session, const EngineLock& lock) {
  LiveStorages live;
  session.engine(lock).values().for_each_storage([&](StorageId id, const detail::HeldStorage&) {
    if (session.engine(lock).handle(id) == nullptr) {
      return;  // a charge without a storage
    }
    if (detail::StoragePtr storage = session.storages(lock).record(id).weak.lock()) {
      live.emplace_back(id, std::move(storage));
    }
  });
  return live;
}

const void* memory_of(c10::StorageImpl& storage) {
  return storage._mutable_data_ptr_no_checks().get();
}

Bytes size_of(const c10::StorageImpl& storage) {
  return Bytes(static_cast<std::int64_t>(storage.nbytes()));
}

bool overlap(const std::vector<AddressRange>& ranges, AddressRange range) {
  const auto after =
      std::lower_bound(ranges.begin(), ranges.end(), range.to,
                       [](const AddressRange& each, std::uintptr_t to) { return each.from < to; });
  return after != ranges.begin() && std::prev(after)->to > range.from;
}

// The parts of the ranges that are free, extended to whole units of the pool, in the order of
// addresses.
std::vector<std::pair<PoolOffset, PoolOffset>> free_among(const std::vector<AddressRange>& ranges,
                                                          const detail::Pool& pool,
                                                          const detail::Arena& arena) {
  const std::int64_t unit = pool.round_up(Bytes(1)).count();
  const auto base = reinterpret_cast<std::uintptr_t>(arena.at(Bytes(0)));
  const auto limit = reinterpret_cast<std::uintptr_t>(arena.at(arena.size()));
  std::vector<std::pair<PoolOffset, PoolOffset>> found;
  for (const BlockId block : pool.free_blocks()) {
    PoolOffset begin = pool.offset(block);
    const PoolOffset end = begin + pool.size(block);
    for (const AddressRange& range : ranges) {
      if (range.from < base || range.from >= limit) {
        continue;  // memory from outside of the scope
      }
      const Bytes from(static_cast<std::int64_t>(range.from - base) / unit * unit);
      const Bytes to((static_cast<std::int64_t>(range.to - base) + unit - 1) / unit * unit);
      if (from < end && to > begin) {
        found.emplace_back(std::max(begin, from), std::min(end, to));
        begin = found.back().second;
      }
    }
  }
  return found;
}

void require_options(Session& session, const EngineLock& lock) {
  const Options& options = session.engine(lock).options();
  const auto refuse = [&](std::string_view what) {
    throw std::runtime_error(detail::str_cat("recoup: a CUDA graph cannot be captured in a budget ",
                                             what, " on ", session.device().str()));
  };
  if (session.memory().capturing()) {
    refuse("while another capture is under way");
  }
  if (options.spill > Bytes(0)) {
    refuse("with a spill tier (spill=...)");
  }
  if (options.check_replays) {
    refuse("with check_replays=True");
  }
  if (session.observers().recording()) {
    refuse("that records a trace (trace=...)");
  }
}

// Calls act(lock) as a request of the program, in its turn.
template <class Act>
void as_request(Session& session, const Act& act) {
  const EngineLock lock(session.mutex());
  const detail::Turn turn(session, lock);
  const detail::Request request(session.engine(lock), session.tensors().external(), kName);
  try {
    act(lock);
  } catch (const OutOfBudget& error) {
    detail::throw_out_of_budget(error.report());
  }
}

detail::Operand written(StorageId id, c10::StorageImpl& storage) {
  return {.storage = id, .value = {}, .reads = true, .written = true, .owner = &storage};
}

// An op of the program reads and writes the operands and blocks on the current stream.
void run_as_op(std::vector<detail::Operand>& operands, const detail::GraphBlocks::Heir& blocks,
               Session& on, const EngineLock& lock) {
  detail::Engine& engine = on.engine(lock);
  detail::Backend& backend = on.backend(lock);
  const detail::cuda::Stream stream = backend.stream();
  backend.require_ready(stream);
  engine.op().begin(kName, operands);
  try {
    for (const detail::Operand& operand : operands) {
      c10::StorageImpl& storage = impl_of(operand);
      backend.take(memory_of(storage), size_of(storage), stream);
    }
    for (const detail::GraphBlock& block : blocks) {
      backend.take(block.address, block.size, stream);
    }
  } catch (...) {
    engine.op().abort(operands);
    throw;
  }
  const detail::OpUses uses(operands);
  detail::OpRecord record{.inputs = uses.inputs, .written = uses.written, .fresh = {}};
  record.why = detail::NoReplay::kGraph;
  engine.op().end(record, uses, operands, {});
}

// A launch of a graph that was captured outside of the scope. It may write all memory outside of
// the pool, and none in it.
void launch_foreign(Session& session) {
  LiveStorages live;  // released without the lock
  as_request(session, [&](const EngineLock& lock) {
    live = live_storages(session, lock);
    std::vector<detail::Operand> operands;
    for (const auto& [id, storage] : live) {
      const void* const address = memory_of(*storage);
      if (address != nullptr && !session.tensors().arena().contains(address)) {
        operands.push_back(written(id, *storage));
      }
    }
    run_as_op(operands, {}, session, lock);
  });
}

}  // namespace

void launch_graph_from_outside() {
  if (!Sessions::any_on_accelerators() || !detail::on_scope_thread()) {
    return;
  }
  const detail::Visit visit;
  Sessions::for_each([](Session& session) {
    if (!session.device().is_cpu()) {
      launch_foreign(session);
    }
  });
}

struct CapturedGraph::Parts {
  struct Held {
    detail::StoragePtr storage;
    detail::PinTicket pin;
    const void* memory = nullptr;
  };

  c10::Device device{c10::kCPU};
  std::uint32_t session = 0;            // Session::number()
  std::vector<detail::PinTicket> pins;  // of all storages, during the capture
  std::vector<Held> held;               // storages that the graph uses
  detail::GraphBlocks::Heir memory;     // other memory of the pool that the graph uses
  detail::GraphBlocks::Heir others;     // the same, whose owners have not freed it
  detail::GraphBlocks::Ranges uses;     // all memory of the pool that the graph uses
  std::int64_t steps = 0;               // training steps that ended within the capture
  enum class State : std::uint8_t { kCapturing, kCaptured, kFailed };
  State state = State::kCapturing;

  // Null: the scope has ended. Call it in a Visit.
  [[nodiscard]] Session* find() const {
    Session* const found = Sessions::on(device);
    return found != nullptr && found->number() == session ? found : nullptr;
  }

  void unpin_all(Session& on, const EngineLock& lock) {
    for (const detail::PinTicket& pin : std::exchange(pins, {})) {
      on.engine(lock).user().unpin(pin);
    }
  }

  void own_storages(const LiveStorages& live, const std::vector<AddressRange>& ranges, Session& on,
                    const EngineLock& lock) {
    for (const auto& [id, storage] : live) {
      const void* const address = memory_of(*storage);
      if (overlap(ranges, AddressRange(address, storage->nbytes()))) {
        held.push_back({storage, on.engine(lock).user().pin(id), address});
      }
    }
  }

  void own_blocks(const std::vector<AddressRange>& ranges, Session& on, const EngineLock& lock) {
    detail::Engine& engine = on.engine(lock);
    const detail::Arena& arena = on.tensors().arena();
    for (const detail::BlockView& block : engine.pool().taken()) {
      const auto size = static_cast<std::size_t>(block.size.count());
      if (!block.owner.valid() && overlap(ranges, AddressRange(arena.at(block.offset), size))) {
        others.push_back({.address = arena.at(block.offset), .size = block.size});
      }
    }
    for (const detail::GraphBlock& block : others) {
      on.memory().graph_blocks(lock).add(block, memory);
    }
    for (const auto& [begin, end] : free_among(ranges, engine.pool(), arena)) {
      const BlockId block = engine.allocate(end - begin, begin);
      memory.push_back({.address = arena.at(begin), .size = engine.pool().size(block)});
    }
    on.memory().publish_use(lock);
  }

  void count_uses(Session& on, const EngineLock& lock) {
    const auto add = [&](const void* address, Bytes size) {
      if (on.tensors().arena().contains(address)) {
        const Bytes whole = on.engine(lock).pool().round_up(size);
        uses.emplace_back(address, static_cast<std::size_t>(whole.count()));
      }
    };
    for (const Held& each : held) {
      add(each.memory, size_of(*each.storage));
    }
    for (const detail::GraphBlocks::Heir* const blocks : {&memory, &others}) {
      for (const detail::GraphBlock& each : *blocks) {
        add(each.address, each.size);
      }
    }
    on.memory().graph_blocks(lock).add_use(uses);
  }

  // Runs the op of the program that stands for a launch; the caller launches the graph.
  void launch(Session& on, const EngineLock& lock) {
    std::vector<detail::Operand> operands;
    for (const Held& each : held) {
      if (!on.engine(lock).values().holds(each.pin) || memory_of(*each.storage) != each.memory) {
        throw std::runtime_error(
            "recoup: a tensor that a CUDA graph uses has got other memory since the capture, by "
            "resize_() or set_(), so the graph cannot be launched: capture it again");
      }
      operands.push_back(written(each.pin.storage, *each.storage));
    }
    detail::GraphBlocks::Heir blocks = memory;
    blocks.insert(blocks.end(), others.begin(), others.end());
    run_as_op(operands, blocks, on, lock);
  }
};

CapturedGraph::CapturedGraph(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

CapturedGraph::~CapturedGraph() {
  try {
    end(false);
    release();
  } catch (...) {  // the driver has failed, which the next op of the scope reports
  }
}

std::unique_ptr<CapturedGraph> CapturedGraph::begin(int device) {
  if (!Sessions::any_on_accelerators()) {
    return nullptr;
  }
  const detail::Visit visit;
  const c10::Device gpu(detail::gpus().type(), static_cast<c10::DeviceIndex>(device));
  Session* const session = Sessions::on(gpu);
  if (session == nullptr || !detail::on_scope_thread()) {
    return nullptr;
  }
  LiveStorages live;  // released without the lock
  auto parts = std::make_unique<Parts>();
  parts->device = gpu;
  parts->session = session->number();
  as_request(*session, [&](const EngineLock& lock) {
    require_options(*session, lock);
    detail::Engine& engine = session->engine(lock);
    session->backend(lock).require_ready(session->backend(lock).stream());
    try {
      engine.user().materialize_all();
      (void)engine.defragment({}, Bytes(0));  // what is pinned would divide the free memory
      live = live_storages(*session, lock);
      for (const auto& [id, storage] : live) {
        parts->pins.push_back(engine.user().pin(id));
      }
      session->memory().begin_capture(lock);
      session->backend(lock).begin_capture();
    } catch (...) {
      (void)session->memory().end_capture(lock);
      parts->unpin_all(*session, lock);
      throw;
    }
    parts->steps = -session->steps(lock);
  });
  return std::unique_ptr<CapturedGraph>(new CapturedGraph(std::move(parts)));
}

void CapturedGraph::close() {
  const detail::Visit visit;
  if (Session* const session = parts_->find()) {
    as_request(*session,
               [&](const EngineLock& lock) { session->engine(lock).user().materialize_all(); });
  }
}

void CapturedGraph::end(bool captured) {
  const detail::Visit visit;
  LiveStorages live;  // released without the lock
  Session* const session = parts_->find();
  if (parts_->state != Parts::State::kCapturing || session == nullptr) {
    return;
  }
  parts_->state = captured ? Parts::State::kCaptured : Parts::State::kFailed;
  as_request(*session, [&](const EngineLock& lock) {
    std::vector<AddressRange> ranges = session->backend(lock).end_capture();
    for (const detail::GraphBlock& given : session->memory().end_capture(lock)) {
      ranges.emplace_back(given.address, static_cast<std::size_t>(given.size.count()));
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const AddressRange& a, const AddressRange& b) { return a.from < b.from; });
    parts_->steps += session->steps(lock);
    if (captured) {
      live = live_storages(*session, lock);
      parts_->own_storages(live, ranges, *session, lock);
      parts_->own_blocks(ranges, *session, lock);
      parts_->count_uses(*session, lock);
      parts_->launch(*session, lock);
    }
    parts_->unpin_all(*session, lock);
  });
}

void CapturedGraph::replay() {
  if (parts_->state == Parts::State::kFailed) {
    throw std::runtime_error(
        "recoup: the capture of this CUDA graph ended with an error, so it cannot be launched: "
        "reset it and capture again");
  }
  const detail::Visit visit;
  Session* const session = parts_->find();
  if (session == nullptr) {  // the scope has ended
    launch_graph_from_outside();
    return;
  }
  as_request(*session, [&](const EngineLock& lock) { parts_->launch(*session, lock); });
  for (std::int64_t i = 0; i < parts_->steps; ++i) {
    session->mark_step(kName);
  }
}

void CapturedGraph::release() {
  const detail::Visit visit;
  const std::vector<Parts::Held> held =
      std::exchange(parts_->held, {});  // released without the lock
  if (Session* const session = parts_->find()) {
    const EngineLock lock(session->mutex());
    for (const Parts::Held& each : held) {
      session->engine(lock).user().unpin(each.pin);
    }
    session->memory().graph_blocks(lock).remove(parts_->memory);
    session->memory().graph_blocks(lock).remove_use(std::exchange(parts_->uses, {}));
  }
  for (const detail::GraphBlock& block : std::exchange(parts_->memory, {})) {
    detail::gpu_delete(block.address);
  }
}

}  // namespace recoup
