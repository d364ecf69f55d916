#include "csrc/torch/gpu/gpu.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"
#include "csrc/cuda/move.h"
#include "csrc/cuda/reservation.h"
#include "csrc/torch/compat/digest.h"
#include "csrc/torch/gpu/bypass.h"
#include "csrc/torch/gpu/gpus.h"

namespace recoup::detail {
namespace {

// Reserves all addresses of the device, and backs what the budget needs with memory.
class GpuArena final : public Arena {
 public:
  explicit GpuArena(std::unique_ptr<cuda::Reservation> reservation)
      : Arena(reservation->base(), reservation->size()), reservation_(std::move(reservation)) {}

  [[nodiscard]] bool back(Bytes size) { return reservation_->back(size); }
  void discard(PoolOffset from, PoolOffset to) noexcept override {
    reservation_->give_back(from, to);
  }
  [[nodiscard]] Bytes backed() const override { return reservation_->backed(); }

 private:
  std::unique_ptr<cuda::Reservation> reservation_;
};

cuda::Runtime& runtime_for(c10::Device device) {
  if (gpu_type() != device.type()) {
    throw std::runtime_error(
        str_cat("recoup: GPU budgets are unavailable on ", device.str(),
                ": recoup found no GPUs of this type in this process. See docs/cuda.md"));
  }
  cuda::Runtime& runtime = gpus().runtime();
  if (const int count = runtime.device_count(); device.index() >= count) {
    throw std::invalid_argument(str_cat("device ", device.str(), " does not exist; there are ",
                                        count, ", numbered from 0"));
  }
  return runtime;
}

}  // namespace

Gpu::Gpu(c10::Device device)
    : device_(device),
      runtime_(&runtime_for(device)),
      guard_(device.type()),
      order_(*runtime_),
      clock_(*runtime_, device.index()) {
  learn_deleter();
}

Gpu::~Gpu() = default;

// PyTorch does not tell which allocator it uses; a tensor's deleter shows it.
void Gpu::learn_deleter() {
  const Bypass bypass;
  const at::Tensor probe = at::empty({1}, at::TensorOptions().dtype(at::kByte).device(device_));
  const c10::DataPtr& data = probe.storage().data_ptr();
  if (!gpus().is_outside(data)) {
    throw std::runtime_error(str_cat("recoup: PyTorch allocates the memory of ", device_.str(),
                                     " with another allocator. See docs/cuda.md"));
  }
  program_deleter_ = data.get_deleter();
}

Bytes Gpu::budget_unit() const { return runtime_->granularity(device_.index()); }

Bytes Gpu::budget(Bytes wanted) const {
  const std::int64_t unit = budget_unit().count();
  if (wanted.count() < unit) {
    throw std::invalid_argument(str_cat("a budget on ", device_.str(), " must be at least ",
                                        to_string(Bytes(unit)),
                                        ", the allocation unit of its "
                                        "memory"));
  }
  return Bytes(wanted.count() / unit * unit);
}

Bytes Gpu::outside() const {
  gpus().outside().empty_cache();
  return gpus().outside_bytes(device_.index());
}

std::unique_ptr<Arena> Gpu::make_arena(Bytes size) {
  const Bytes addresses = std::max(size, runtime_->memory(device_.index()).total);
  auto arena = std::make_unique<GpuArena>(
      std::make_unique<cuda::Reservation>(*runtime_, device_.index(), addresses));
  back(*arena, size);
  return arena;
}

void Gpu::back(Arena& arena, Bytes size) {
  auto& ours = static_cast<GpuArena&>(arena);
  if (size <= arena.size()) {
    if (ours.back(size)) {
      return;
    }
    // PyTorch's allocator still caches what was freed outside since the scope began.
    gpus().outside().empty_cache();
    if (ours.back(size)) {
      return;
    }
  }
  const cuda::DeviceMemory memory = runtime_->memory(device_.index());
  throw std::runtime_error(
      str_cat("recoup: only ", to_string(memory.free), " of the ", to_string(memory.total), " of ",
              device_.str(), " are free; the budget needs ", to_string(size),
              ". Choose a smaller budget, or free GPU memory of this and other processes"));
}

std::vector<cuda::Segment> Gpu::outside_segments() const {
  std::optional<std::vector<cuda::Segment>> found = gpus().outside().segments(device_.index());
  if (!found) {
    return {};
  }
  for (cuda::Segment& left : gpus().scopes().left_segments(device_.index())) {
    found->push_back(std::move(left));
  }
  return std::move(*found);
}

void Gpu::wait_for_device() {
  guard_.synchronizeDevice(device_.index());
  outside_before_ = gpus().outside_bytes(device_.index());
}

Bytes Gpu::take_returned(Arena& arena, Bytes backed, Bytes most) {
  gpus().outside().empty_cache();
  const Bytes returned = outside_before_ - gpus().outside_bytes(device_.index());
  const std::int64_t unit = budget_unit().count();
  const Bytes taken(std::clamp(returned, Bytes(0), most).count() / unit * unit);
  return static_cast<GpuArena&>(arena).back(backed + taken) ? taken : Bytes(0);
}

// A storage keeps the allocator that made it, and requests new bytes from that one.
void Gpu::adopt(c10::StorageImpl& storage) {
  c10::Allocator* const ours = gpus().outside().allocator_in_scopes();
  if (ours != nullptr && storage.allocator() != nullptr) {
    storage.set_allocator(ours);
  }
}

cuda::Stream Gpu::stream() const {
  return {.handle = guard_.getStreamNativeHandle(guard_.getStream(device_)),
          .device = device_.index()};
}

void Gpu::require_ready() const {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (runtime_->capturing(stream())) {
    throw std::runtime_error(cuda::no_capture_in_budget(device_.str()));
  }
}

void Gpu::use(const void* memory, Bytes size, cuda::Stream stream) {
  if (size > Bytes(0)) {
    order_.use(range_at(memory, size), stream);
  }
}

void Gpu::take(const void* memory, Bytes size, cuda::Stream stream) {
  if (size > Bytes(0)) {
    order_.take(range_at(memory, size), stream);
  }
}

void Gpu::read_external(void* memory, Bytes size) {
  take(memory, size);
  if (!gpus().owns(memory)) {
    gpus().outside().record_stream(memory, guard_.getStream(device_));
  }
}

void Gpu::wait_for_all() noexcept {
  try {
    for (const cuda::Stream each : order_.streams()) {
      runtime_->synchronize(each);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Gpu::copy(void* to, const void* from, Bytes size) noexcept {
  try {
    const cuda::Stream here = stream();
    take(from, size, here);
    take(to, size, here);
    take(bounce_.memory, bounce_.size, here);
    cuda::move(*runtime_, here, to, from, size, bounce_);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Gpu::open_tier(Bytes size) {
  tier_ = std::make_unique<GpuTier>(*runtime_, device_.index(), size, order_);
}

void* Gpu::keep_copy(const void* memory, std::size_t size) {
  const Bytes bytes(static_cast<std::int64_t>(size));
  const cuda::Stream here = stream();
  const Bypass bypass;
  void* const copy =
      bytes == Bytes(0) ? nullptr : gpus().outside().allocate(bytes, device_.index(), here);
  if (copy != nullptr) {
    runtime_->copy(here, copy, memory, bytes);
  }
  return copy;
}

void Gpu::drop_copy(void* copy) noexcept {
  if (copy != nullptr) {
    gpus().outside().free(copy);
  }
}

void Gpu::put_back(void* memory, const void* copy, std::size_t size) noexcept {
  if (copy == nullptr) {
    return;
  }
  try {
    runtime_->copy(stream(), memory, copy, Bytes(static_cast<std::int64_t>(size)));
  } catch (...) {
    failure_ = std::current_exception();
  }
}

std::uint64_t Gpu::hash(const void* memory, Bytes size) {
  const cuda::Stream here = stream();
  const std::unique_ptr<void, std::function<void(void*)>> bytes(
      runtime_->allocate_pinned(size), [this](void* held) { runtime_->release_pinned(held); });
  if (bytes == nullptr) {
    throw std::bad_alloc();
  }
  take(memory, size, here);
  runtime_->copy(here, bytes.get(), memory, size);
  runtime_->synchronize(here);
  return digest(bytes.get(), static_cast<std::size_t>(size.count()));
}

namespace {

// Time in nanoseconds per byte of a move whose ranges overlap by a short distance, so that it goes
// through a bounce buffer, in parts. Returns the shortest of some moves, since the others were
// disturbed. None if there is no memory for it.
std::optional<double> measure_move(cuda::Runtime& runtime, int device, cuda::Stream stream) {
  constexpr Bytes kBytes(16 << 20);
  constexpr Bytes kBounce(4 << 20);
  constexpr std::int64_t kDistance = 512;
  constexpr int kMoves = 3;
  const auto release = [&](void* memory) { runtime.release(device, memory); };
  const std::unique_ptr<void, decltype(release)> all(
      runtime.allocate(device, kBytes + Bytes(kDistance) + kBounce), release);
  if (all == nullptr) {
    return std::nullopt;
  }
  auto* const from = static_cast<char*>(all.get());
  const cuda::Bounce bounce{.memory = from + kBytes.count() + kDistance, .size = kBounce};
  const auto destroy = [&](void* event) { runtime.destroy_event({event}); };
  using OwnEvent = std::unique_ptr<void, decltype(destroy)>;
  const OwnEvent start(runtime.create_event(device, true).handle, destroy);
  const OwnEvent end(runtime.create_event(device, true).handle, destroy);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kMoves; ++i) {
    runtime.record({start.get()}, stream);
    cuda::move(runtime, stream, from + kDistance, from, kBytes, bounce);
    runtime.record({end.get()}, stream);
    runtime.synchronize(cuda::Event{end.get()});
    best = std::min(best, static_cast<double>(runtime.elapsed({start.get()}, {end.get()}).count()));
  }
  return std::max(best / static_cast<double>(kBytes.count()), 1e-4);
}

}  // namespace

double Gpu::move_ns_per_byte() {
  constexpr double kUnmeasured = 0.002;   // that of a fast device
  static std::map<int, double> measured;  // by device index
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const auto known = measured.find(device_.index()); known != measured.end()) {
    return known->second;
  }
  const auto found = measure_move(*runtime_, device_.index(), stream());
  if (found) {
    measured[device_.index()] = *found;
  }
  return found.value_or(kUnmeasured);
}

Gpu::Begun Gpu::begin_op() {
  const cuda::Stream here = stream();
  return {.stream = here, .event = clock_.begin(here)};
}

Gpu::Estimate Gpu::estimate(std::uint64_t kind, Bytes moved, double flops) const {
  const auto known = costs_.belief(kind);
  return {.cost = known ? *known : cuda::Roofline().estimate(moved, flops),
          .measured = known.has_value()};
}

cuda::OpClock::Token Gpu::end_op(const Begun& begun) noexcept {
  try {
    clock_.end(begun.stream, begun.event, ++last_token_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  return last_token_;
}

Nanoseconds Gpu::time_now(const Begun& begun) {
  const cuda::Event end = runtime_->create_event(device_.index(), true);
  runtime_->record(end, begun.stream);
  runtime_->synchronize(end);
  const Nanoseconds time = runtime_->elapsed(begun.event, end);
  runtime_->destroy_event(end);
  cancel_op(begun);
  return time;
}

void Gpu::resolve_now_and_then(Engine& engine) {
  constexpr int kBatch = 16;
  if (--until_resolve_ < 0) {
    until_resolve_ = kBatch;
    resolve(engine);
  }
}

void Gpu::resolve(Engine& engine) {
  clock_.resolve([&](cuda::OpClock::Token token, Nanoseconds cost) {
    const auto found = timed_.find(token);
    if (found == timed_.end()) {
      return;  // the op failed after its kernel
    }
    const TimedOp& op = found->second;
    engine.op().learn_cost(op.made, op.estimate, costs_.learn(op.kind, cost));
    timed_.erase(found);
  });
}

void Gpu::check() const {
  order_.check();
  clock_.check();
  RECOUP_CHECK(timed_.size() <= clock_.pending());
  if (tier_) {
    tier_->check();
  }
}

}  // namespace recoup::detail
