#include "csrc/torch/gpu/gpu_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "csrc/base/strings.h"
#include "csrc/cuda/error.h"
#include "csrc/cuda/move.h"
#include "csrc/cuda/reservation.h"
#include "csrc/torch/backend/bypass.h"
#include "csrc/torch/compat/digest.h"
#include "csrc/torch/gpu/gpu_route.h"
#include "csrc/torch/gpu/gpu_scope.h"
#include "csrc/torch/gpu/gpus.h"
#include "recoup/torch.h"

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
  cuda::Runtime& runtime = gpus().runtime();
  if (const int count = runtime.device_count(); device.index() >= count) {
    throw std::invalid_argument(str_cat("device ", device.str(), " does not exist; there are ",
                                        count, ", numbered from 0"));
  }
  return runtime;
}

}  // namespace

GpuBackend::GpuBackend(c10::Device device)
    : Backend({.streams = true,
               .segments = true,
               .bounces = true,
               .reports_use = true,
               .fused_lists = true,
               .kernels_vary = true}),
      device_(device),
      runtime_(&runtime_for(device)),
      guard_(device.type()),
      order_(*runtime_),
      copies_(device.index()),
      times_(*runtime_, device, failure_) {
  if (runtime_->capturing(stream())) {
    throw std::runtime_error(str_cat("recoup: a budget on ", device_.str(),
                                     " cannot begin while a CUDA graph is captured: begin it "
                                     "before the capture, or after it"));
  }
  learn_deleter();
}

GpuBackend::~GpuBackend() = default;

// PyTorch does not tell which allocator it uses; a tensor's deleter shows it.
void GpuBackend::learn_deleter() {
  const Bypass bypass;
  const at::Tensor probe = at::empty({1}, at::TensorOptions().dtype(at::kByte).device(device_));
  const c10::DataPtr& data = probe.storage().data_ptr();
  if (!gpus().is_outside(data)) {
    throw std::runtime_error(str_cat("recoup: PyTorch allocates the memory of ", device_.str(),
                                     " with another allocator. See docs/cuda.md"));
  }
  program_deleter_ = data.get_deleter();
}

StorageHooks GpuBackend::complete(StorageHooks hooks) const {
  hooks.pool = &gpu_delete;
  hooks.program = program_deleter_;
  return hooks;
}

std::unique_ptr<MemoryRoute> GpuBackend::make_route(ProgramMemory& memory, const Arena& arena) {
  return std::make_unique<GpuRoute>(device_.index(), std::make_shared<GpuScope>(memory, arena),
                                    copies_);
}

Options GpuBackend::adjust(Options options) const {
  if (options.aids.poison) {
    throw std::invalid_argument("the test aid 'poison' is for CPU budgets only");
  }
  if (options.budget > Bytes(0)) {
    options.budget = budget(options.budget);
    options.outside = outside();
    options.alignment = Bytes(512);  // what kernels expect of PyTorch's own allocator
  }
  options.spill_compares = options.spill <= Bytes(0);  // the host would wait for a comparison
  return options;
}

void GpuBackend::require_can_shrink() const {
  throw std::invalid_argument("recoup: a GPU budget cannot be reduced");
}

std::optional<TraceDevice> GpuBackend::traced_as(const Options& options) const {
  return TraceDevice{.alignment = options.alignment,
                     .unit = budget_unit(),
                     .outside = options.outside,
                     .bounces = false,
                     .compares = false};
}

Bytes GpuBackend::budget_unit() const { return runtime_->granularity(device_.index()); }

Bytes GpuBackend::budget(Bytes wanted) const {
  const std::int64_t unit = budget_unit().count();
  if (wanted.count() < unit) {
    throw std::invalid_argument(str_cat("a budget on ", device_.str(), " must be at least ",
                                        to_string(Bytes(unit)),
                                        ", the allocation unit of its "
                                        "memory"));
  }
  return Bytes(wanted.count() / unit * unit);
}

void GpuBackend::empty_outside_cache() const {
  copies_.release_buffer();
  gpus().outside().empty_cache();
}

Bytes GpuBackend::outside() const {
  empty_outside_cache();
  return gpus().outside_bytes(device_.index());
}

std::unique_ptr<Arena> GpuBackend::make_arena(const Options& options) {
  const Bytes size = options.budget - options.outside;
  const Bytes addresses = std::max(size, runtime_->memory(device_.index()).total);
  auto arena = std::make_unique<GpuArena>(
      std::make_unique<cuda::Reservation>(*runtime_, device_.index(), addresses));
  back(*arena, size);
  return arena;
}

void GpuBackend::back(Arena& arena, Bytes size) {
  auto& ours = static_cast<GpuArena&>(arena);
  if (size <= arena.size()) {
    if (ours.back(size)) {
      return;
    }
    // PyTorch's allocator still caches what was freed outside since the scope began.
    empty_outside_cache();
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

bool GpuBackend::is_outside(const c10::DataPtr& data) const { return gpus().is_outside(data); }

std::vector<OutsideSegment> GpuBackend::outside_segments() const {
  copies_.release_buffer();  // its segment may be unused otherwise
  std::optional<std::vector<OutsideSegment>> found = gpus().outside().segments(device_.index());
  if (!found) {
    return {};
  }
  for (OutsideSegment& left : gpus().scopes().left_segments(device_.index())) {
    found->push_back(std::move(left));
  }
  return std::move(*found);
}

void GpuBackend::wait_for_outside() {
  guard_.synchronizeDevice(device_.index());
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

Bytes GpuBackend::take_returned(Arena& arena, Bytes before, Bytes in_pool, Bytes most) {
  const Bytes returned = before - outside();
  const std::int64_t unit = budget_unit().count();
  const Bytes taken(std::clamp(returned, Bytes(0), most).count() / unit * unit);
  return static_cast<GpuArena&>(arena).back(in_pool + taken) ? taken : Bytes(0);
}

// A storage keeps the allocator that made it, and requests new bytes from that one.
void GpuBackend::adopt(c10::StorageImpl& storage) {
  c10::Allocator* const ours = gpus().outside().allocator_in_scopes();
  if (ours != nullptr && storage.allocator() != nullptr) {
    storage.set_allocator(ours);
  }
}

void GpuBackend::require_ready(cuda::Stream stream) const {
  if (failure_) {
    std::rethrow_exception(failure_);
  }
  if (!capturing_ && runtime_->capturing(stream)) {
    throw std::runtime_error(cuda::no_capture_in_budget(device_.str()));
  }
}

void GpuBackend::use(const void* memory, Bytes size, cuda::Stream stream) {
  if (size > Bytes(0)) {
    note_access(memory, size);
    order_.use(range_at(memory, size), stream);
  }
}

void GpuBackend::take(const void* memory, Bytes size, cuda::Stream stream) {
  if (size > Bytes(0)) {
    note_access(memory, size);
    order_.take(range_at(memory, size), stream);
  }
}

void GpuBackend::read_external(void* memory, Bytes size) {
  take(memory, size);
  if (!gpus().owns(memory)) {
    gpus().outside().record_stream(memory, guard_.getStream(device_));
  }
}

void GpuBackend::note_access(const void* memory, Bytes size) {
  if (capturing_) [[unlikely]] {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    accessed_ += boost::icl::interval<std::uintptr_t>::right_open(
        begin, begin + static_cast<std::uintptr_t>(size.count()));
  }
}

void GpuBackend::begin_capture() {
  (void)move_ns_per_byte();  // measured with events and host waits
  wait_for_outside();
  order_.restart(stream());
  times_.pause(true);
  accessed_.clear();
  capturing_ = true;
}

std::vector<AddressRange> GpuBackend::end_capture() {
  capturing_ = false;
  times_.pause(false);
  wait_for_outside();
  order_.restart(stream());
  std::vector<AddressRange> ranges;
  for (const auto& each : accessed_) {
    ranges.emplace_back(reinterpret_cast<const void*>(each.lower()), each.upper() - each.lower());
  }
  accessed_.clear();
  return ranges;
}

void GpuBackend::wait_for_all() noexcept {
  try {
    for (const cuda::Stream each : order_.streams()) {
      runtime_->synchronize(each);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void GpuBackend::copy(void* to, const void* from, Bytes size) noexcept {
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

void GpuBackend::open_tier(const Options& options) {
  if (!options.spill_dir.empty()) {
    throw std::invalid_argument(str_cat("recoup: the spill tier of ", device_.str(),
                                        " is in pinned host memory, not in a directory: leave "
                                        "out spill_dir"));
  }
  if (options.spill > physical_memory()) {
    throw std::invalid_argument(str_cat("recoup: the spill tier of ", device_.str(),
                                        " is in pinned host memory, ", "which has ",
                                        to_string(physical_memory()), ": choose a smaller spill"));
  }
  tier_ = std::make_unique<GpuTier>(*runtime_, device_.index(), options.spill, order_);
  // The tier imports memory from before the scope, which streams that StreamOrder does not know may
  // still use.
  wait_for_outside();
}

void* GpuBackend::keep_copy(const void* memory, std::size_t size) {
  const Bytes bytes(static_cast<std::int64_t>(size));
  const cuda::Stream here = stream();
  void* const copy = copies_.take(bytes, here);
  if (copy != nullptr) {
    try {
      runtime_->copy(here, copy, memory, bytes);
    } catch (...) {
      copies_.drop(copy);
      throw;
    }
  }
  return copy;
}

void GpuBackend::drop_copy(void* copy) noexcept {
  if (copy != nullptr) {
    copies_.drop(copy);
  }
}

void GpuBackend::put_back(void* memory, const void* copy, std::size_t size) noexcept {
  if (copy == nullptr) {
    return;
  }
  try {
    runtime_->copy(stream(), memory, copy, Bytes(static_cast<std::int64_t>(size)));
  } catch (...) {
    failure_ = std::current_exception();
  }
}

std::uint64_t GpuBackend::hash(
    const void* memory, Bytes size,
    c10::function_ref<std::uint64_t(const void* memory)> /*of_defined*/) {
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

double GpuBackend::move_ns_per_byte() {
  constexpr double kUnmeasured = 0.002;  // that of a fast device
  return gpus()
      .move_speeds()
      .get(device_.index(), [this] { return measure_move(*runtime_, device_.index(), stream()); })
      .value_or(kUnmeasured);
}

void GpuBackend::check() const {
  order_.check();
  times_.check();
  if (tier_) {
    tier_->check();
  }
}

}  // namespace recoup::detail
