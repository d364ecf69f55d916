#include "csrc/torch/storages/tensor_device.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "csrc/base/strings.h"
#include "csrc/engine/program/engine.h"
#include "csrc/torch/backend/backends.h"
#include "csrc/torch/backend/uncaptured_stream.h"
#include "csrc/torch/compat/errors.h"
#include "csrc/torch/compat/storage_access.h"
#include "csrc/torch/ops/overwritable.h"
#include "csrc/torch/storages/owners.h"
#include "recoup/torch.h"

namespace recoup::detail {
namespace {

// PyTorch issues the warning after the op, without the engine's lock. Its text names the place,
// without the folder of the build.
void warn(const std::string& text, const char* function, std::uint32_t line) {
  const c10::SourceLocation place = {function, "csrc/torch/storages/tensor_device.cpp", line};
  c10::warn(c10::Warning(c10::UserWarning(), place, text, /*verbatim=*/false));
}

}  // namespace

TensorDevice::TensorDevice(c10::Device device, std::uint32_t session, const StorageHooks& hooks,
                           const Neighbors& neighbors)
    : device_(device),
      session_(session),
      backend_(make_backend(device, *hooks.allocator_of_cpu)),
      can_(backend_->capabilities()),
      hooks_(backend_->complete(hooks)),
      engine_(neighbors.engine),
      mutex_(neighbors.mutex),
      records_(neighbors.records),
      external_(engine_, mutex_, records_),
      evicted_message_(&detail::evicted_message()) {}

TensorDevice::~TensorDevice() = default;

void TensorDevice::make_arena(const Options& options) { arena_ = backend_->make_arena(options); }

void TensorDevice::open_tier(const Options& options) {
  if (options.spill > Bytes(0)) {
    backend_->open_tier(options);
    brings_in_ = true;
  }
}

bool TensorDevice::lend_tier() noexcept { return backend_->lend_tier(); }

void TensorDevice::on_tier_failure() {
  if (!std::exchange(tier_failed_, true)) {
    const std::string why = tier()->failure();
    warn(
        detail::str_cat("recoup: the spill tier could not be written", why.empty() ? "" : ": ", why,
                        ". Values that it cannot take stay in memory or are recomputed, which may "
                        "take long. Free space there, raise the limit, or choose another directory "
                        "with spill_dir (--spill-dir)"),
        __func__, __LINE__);
  }
}

std::optional<double> TensorDevice::move_ns_per_byte() const {
  return backend_->move_ns_per_byte();
}

bool TensorDevice::has_its_memory(const StorageRecord& held) {
  return held.strong->_mutable_data_ptr_no_checks().get() ==
         reinterpret_cast<const void*>(held.range.from);
}

// Throws for an external storage whose memory was replaced unseen: its content is gone.
void* TensorDevice::address(const Location& location) {
  if (location.external != nullptr) {
    auto& record = *static_cast<StorageRecord*>(location.external);
    const bool held = external_.hold(record);
    RECOUP_CHECK(held, "the bytes of a storage that the program has let go are asked for");
    if (!has_its_memory(record)) [[unlikely]] {
      throw std::runtime_error(
          "recoup: the memory of a tensor was replaced without recoup seeing it, but an evicted "
          "tensor must be recomputed from its old content. Replace it with tensor operations, or "
          "first call recoup.materialize on the tensors computed from it");
    }
    return record.strong->_mutable_data_ptr_no_checks().get();
  }
  return arena_->at(location.offset);
}

void TensorDevice::attach(void* handle, PoolOffset offset) noexcept {
  auto* const record = static_cast<StorageRecord*>(handle);
  StoragePtr storage = record->weak.lock();
  if (!storage) {
    return;  // dying on another thread, whose deleter waits for this lock
  }
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  data.release_context();
  void* const pointer = arena_->at(offset);
  storage->set_data_ptr_noswap({pointer, pointer, hooks_.pool, device_});
  allow_access(*storage);
  mutex_.graveyard().add(std::move(storage));
}

bool TensorDevice::detach(void* handle, PoolOffset offset) noexcept {
  auto* const record = static_cast<StorageRecord*>(handle);
  StoragePtr storage = record->weak.lock();
  if (!storage) {
    return false;
  }
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  const bool ours = data.get() == arena_->at(offset) && in_pool(data);
  if (ours) {
    data.release_context();
    const EvictedContext context{.session = session_, .record = record->self};
    storage->set_data_ptr_noswap({nullptr, context.pack(), hooks_.evicted, device_});
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(evicted_message());
  }
  mutex_.graveyard().add(std::move(storage));
  return ours;
}

void TensorDevice::copy(PoolOffset to, const Location& from, Bytes size) {
  backend_->copy(arena_->at(to), address(from), size);
}

// The pattern is not a number in every float type, and out of range as an index.
void TensorDevice::poison(PoolOffset at, Bytes size) noexcept {
  constexpr std::uint16_t kNotANumber = 0x7fff;
  std::fill_n(static_cast<std::uint16_t*>(arena_->at(at)), size.count() / 2, kNotANumber);
}

PageSizes TensorDevice::page_sizes() const { return backend_->page_sizes(); }

void TensorDevice::discard(PoolOffset from, PoolOffset to) noexcept { arena_->discard(from, to); }

std::uint64_t TensorDevice::hash(const Location& from, Bytes size, const void* payload,
                                 std::size_t result) {
  const Coverage* const coverage = static_cast<const Payload*>(payload)->coverage.get();
  RECOUP_CHECK(coverage != nullptr);
  return backend_->hash(address(from), size,
                        [&](const void* memory) { return coverage->digest(memory, size, result); });
}

std::unique_ptr<Payload> TensorDevice::new_payload(const c10::OperatorHandle& op) {
  std::unique_ptr<Payload> payload;
  if (spare_payloads_.empty()) {
    payload = std::make_unique<Payload>();
  } else {
    payload = std::move(spare_payloads_.back());
    spare_payloads_.pop_back();
  }
  payload->op = op;
  return payload;
}

void TensorDevice::release(void* pointer) noexcept {
  constexpr std::size_t kSpare = 64;
  std::unique_ptr<Payload> payload(static_cast<Payload*>(pointer));
  if (!payload->harmless) {
    mutex_.graveyard().add(std::move(payload));
  } else if (spare_payloads_.size() < kSpare) {
    payload->clear();
    spare_payloads_.push_back(std::move(payload));
  }
}

std::size_t TensorDevice::payload_bytes(const void* payload) const noexcept {
  return static_cast<const Payload*>(payload)->memory;
}

std::string TensorDevice::name(const void* payload) const {
  return static_cast<const Payload*>(payload)->traits->name;
}

// To be called before work on bytes that only the engine knows of; see Note [Stream order].
void TensorDevice::order_replay(const StoragePtr& storage, bool external, cuda::Stream stream) {
  void* const bytes = storage->_mutable_data_ptr_no_checks().get();
  const Bytes size(static_cast<std::int64_t>(storage->nbytes()));
  if (external) {
    backend_->read_external(bytes, size);
  } else {
    backend_->take(bytes, size, stream);
  }
}

void TensorDevice::on_slow(double ratio, double most, Bytes budget) {
  const std::string bound =
      most > 0 ? detail::str_cat("Beyond ", most, " times OutOfBudgetError is raised; ")
               : std::string();
  const double shown = std::round(10 * ratio) / 10;
  warn(detail::str_cat("recoup: in the budget of ", detail::short_text(budget),
                       " replays take most of the time: ops and replays took ", shown,
                       " times as long as the ops alone. The least budget that works is probably "
                       "larger: `recoup suggest SCRIPT` finds it, and a spill tier (spill=SIZE, "
                       "--spill SIZE) can hold what cannot be recomputed. Ctrl-C is safe. ",
                       bound, "max_slowdown (--max-slowdown) sets this bound"),
       __func__, __LINE__);
}

Measurement TensorDevice::replay(void* payload_pointer, std::span<const Location> inputs,
                                 std::span<const PoolOffset> written, std::span<BlockId> outputs) {
  const Payload& payload = *static_cast<const Payload*>(payload_pointer);
  const cuda::Stream here = backend_->stream();
  std::vector<StoragePtr> input_storages;
  std::vector<StoragePtr> written_storages;
  std::size_t next = 0;
  for (const Location& input : inputs) {
    input_storages.push_back(storage_over(address(input), payload.storage_bytes[next++], device_));
    order_replay(input_storages.back(), input.external != nullptr, here);
  }
  for (PoolOffset offset : written) {
    written_storages.push_back(
        storage_over(arena_->at(offset), payload.storage_bytes[next++], device_));
    order_replay(written_storages.back(), false, here);
  }
  torch::jit::Stack stack;
  const Nanoseconds took = run_unlocked(payload, input_storages, written_storages, stack);
  require_in_place(payload, inputs, stack);
  take_fresh(payload, stack, outputs);
  // The stack still has tensors over bytes that they do not own, and unused results, whose deleters
  // need the lock.
  mutex_.unlock();
  stack.clear();
  mutex_.lock();
  return {.key = payload.cost_key, .took = took};
}

// While a kernel of another thread runs, its allocations could take the input's block.
bool TensorDevice::may_overwrite(const void* payload, std::size_t input) const {
  return !in_kernel() && is_overwritable(*static_cast<const Payload*>(payload), input);
}

// A result that has taken the block of an input must replace it element by element: otherwise the
// kernel may have overwritten bytes before it read them.
void TensorDevice::require_in_place(const Payload& payload, std::span<const Location> inputs,
                                    torch::jit::Stack& stack) {
  const Handover& handover = engine_.op().handover();
  if (!handover.taken()) {
    return;
  }
  const void* const address = arena_->at(handover.offset());
  bool right = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].external == nullptr && inputs[i].offset == handover.offset()) {
      for_each_tensor(stack, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
        right |= tensor.has_storage() && tensor.storage().data() == address &&
                 has_shape_of_input(tensor, payload, i);
      });
    }
  }
  if (!right) {
    mutex_.unlock();
    stack.clear();
    mutex_.lock();
    OutOfBudgetReport report;
    report.op = payload.traits->name;
    report.budget = engine_.budget();
    report.reason = Handover::kNotTaken;
    throw OutOfBudget(std::move(report));
  }
}

// Releases the lock while the kernel runs; returns how long the kernel took.
Nanoseconds TensorDevice::run_unlocked(const Payload& payload, std::span<const StoragePtr> inputs,
                                       std::span<const StoragePtr> written,
                                       torch::jit::Stack& stack) {
  std::optional<c10::DeviceGuard> on_device;
  if (device_.has_index()) {
    on_device.emplace(device_);
  }
  const UncapturedStream on(payload.traits->own_kernel ? UncapturedStream::current()
                                                       : std::nullopt);
  kernel_started();
  mutex_.unlock();
  std::exception_ptr failure;
  Nanoseconds took{0};
  CaughtFailure caught(&Settings::current(device_.type()));
  try {
    const FailureNoted noted(caught);
    took = run_again(payload, inputs, written, stack);
  } catch (...) {
    failure = std::current_exception();
  }
  if (caught.noted() || failure_of_workers_.noted()) {
    caught.restore_settings();
    OutOfBudgetReport report = caught.noted() ? caught.take() : failure_of_workers_.take();
    failure = std::make_exception_ptr(OutOfBudget(std::move(report)));  // as the engine expects it
  }
  if (failure) {
    stack.clear();
  }
  mutex_.lock();
  kernel_ended();
  if (failure) {
    std::rethrow_exception(failure);
  }
  return took;
}

// Moves the blocks of the fresh results from their storages to `outputs`.
void TensorDevice::take_fresh(const Payload& payload, torch::jit::Stack& stack,
                              std::span<BlockId> outputs) {
  std::vector<at::Tensor> results;
  for_each_tensor(stack, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    for_each_part(tensor, [&](const at::Tensor& part) { results.push_back(part); });
  });
  for (std::size_t slot = 0; slot < outputs.size(); ++slot) {
    const std::size_t index = payload.fresh_results[slot];
    RECOUP_CHECK(index < results.size(), "a replay of ", payload.traits->name, " made ",
                 results.size(), " tensors");
    c10::StorageImpl* const storage = results[index].storage().unsafeGetStorageImpl();
    c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (!in_pool(data)) {
      continue;
    }
    const auto block = engine_.pool().find(arena_->offset(data.get()));
    RECOUP_CHECK(block.has_value() && !engine_.pool().owner(*block).valid());
    data.release_context();
    storage->set_data_ptr_noswap(no_bytes());
    outputs[slot] = *block;
  }
}

void TensorDevice::find_segments() { segments_.set(backend_->outside_segments()); }

SegmentId TensorDevice::segment_of(const c10::StorageImpl& storage) {
  const std::uint32_t known = segments_.count();
  const SegmentId segment = segments_.find(data_of(storage).get());
  if (segments_.count() > known) {
    engine_.set_segment({.segment = segment, .returnable = Bytes(0)});
  }
  return segment;
}

std::vector<SegmentChange> TensorDevice::changed_segments() {
  if (segments_.count() == 0) {
    return {};
  }
  // Another storage may have the memory of a record whose storage has got other memory unseen.
  const auto in_segment = [this](const void* memory) {
    const StorageRecord* const owner = records_.owner_in({memory, 1});
    return owner != nullptr && owner->range.from == reinterpret_cast<std::uintptr_t>(memory) &&
           !owner->weak.expired() && data_of(*owner->impl).get() == memory &&
           engine_.context().segments.of(owner).valid();
  };
  return segments_.changes(backend_->outside_segments(), in_segment);
}

void TensorDevice::wait_for_outside() { backend_->wait_for_outside(); }

Bytes TensorDevice::take_segment(Bytes size) {
  const Bytes outside = engine_.outside();
  return backend_->take_returned(*arena_, outside, engine_.budget() - outside, size);
}

// Frees the storage's own memory on return.
void TensorDevice::take_over(void* external) noexcept {
  auto* const record = static_cast<StorageRecord*>(external);
  records_.unindex_external(*record);
  StoragePtr storage = std::move(record->strong);
  RECOUP_CHECK(storage, "a storage that is taken over must be held");
  const c10::DataPtr own = std::move(storage->_mutable_data_ptr_no_checks());
  const EvictedContext context{.session = session_, .record = record->self};
  storage->set_data_ptr_noswap({nullptr, context.pack(), hooks_.evicted, device_});
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(evicted_message());
  mutex_.graveyard().add(std::move(storage));
}

// The deleter stays that of the pool, so that the engine learns when the storage dies.
bool TensorDevice::move_out(void* handle, PoolOffset offset, Bytes nbytes) noexcept {
  auto* const record = static_cast<StorageRecord*>(handle);
  StoragePtr storage = can_.leaves_pool ? record->weak.lock() : StoragePtr();
  if (!storage) {
    return false;
  }
  c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  const auto size = static_cast<std::size_t>(nbytes.count());
  const bool here = data.get() == arena_->at(offset) && in_pool(data);
  void* const own = here ? backend_->copy_out(data.get(), size) : nullptr;
  if (own != nullptr) {
    data.release_context();
    storage->set_data_ptr_noswap({own, own, hooks_.pool, device_});
    record->range = {own, size};
    records_.index_external(*record);
    moved_out_.insert_or_assign(record->range.from, record->self);
  }
  mutex_.graveyard().add(std::move(storage));
  return own != nullptr;
}

// Memory of another deleter may run code of its owner, which must not run under the lock.
void TensorDevice::forget_released(void* external) noexcept {
  const auto& record = *static_cast<const StorageRecord*>(external);
  c10::DataPtr own;
  if (record.strong && is_sole_owner(record.strong)) {
    c10::DataPtr& data = record.strong->_mutable_data_ptr_no_checks();
    if (data.get_deleter() == hooks_.program || data.get_deleter() == hooks_.pool) {
      own = std::exchange(data, no_bytes());
    }
  }
  forget(external);
}

void TensorDevice::forget(void* external) noexcept {
  auto* const record = static_cast<StorageRecord*>(external);
  records_.unindex_external(*record);
  if (moved_out_to(reinterpret_cast<const void*>(record->range.from)) == record) {
    moved_out_.erase(record->range.from);
  }
  mutex_.graveyard().add(std::move(record->strong));
  records_.remove(*record);
}

}  // namespace recoup::detail
