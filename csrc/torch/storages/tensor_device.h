// The engine's device over real tensors: their storages' bytes, and the kernels that compute them.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/engine/base/device.h"
#include "csrc/torch/backend/arena.h"
#include "csrc/torch/backend/backend.h"
#include "csrc/torch/backend/segment_table.h"
#include "csrc/torch/backend/storage_hooks.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/storages/caught_failure.h"
#include "csrc/torch/storages/engine_lock.h"
#include "csrc/torch/storages/external_storages.h"
#include "csrc/torch/storages/storage_records.h"
#include "recoup/options.h"

namespace recoup::detail {

class Engine;

class TensorDevice final : public Device {
 public:
  // References to the device's neighbors. The engine may be constructed later, with this device.
  struct Neighbors {
    Engine& engine;
    EngineMutex& mutex;
    StorageRecords& records;
  };

  // `session`: the session's number. The backend completes the hooks. Throws std::runtime_error for
  // a device on which there can be no budget.
  TensorDevice(c10::Device device, std::uint32_t session, const StorageHooks& hooks,
               const Neighbors& neighbors);
  ~TensorDevice() override;
  TensorDevice(const TensorDevice&) = delete;
  TensorDevice& operator=(const TensorDevice&) = delete;

  [[nodiscard]] c10::Device device() const { return device_; }
  // To be used under the engine's lock.
  [[nodiscard]] Backend& backend() const { return *backend_; }
  // What the backend can do; needs no lock.
  [[nodiscard]] const Capabilities& can() const { return can_; }
  [[nodiscard]] const StorageHooks& hooks() const { return hooks_; }

  // ---- memory ----
  // Call once, before the engine allocates. Throws what Backend::make_arena throws.
  void make_arena(const Options& options);
  // Opens the spill tier if the options have one; call before the engine is made. Throws what
  // Backend::open_tier throws.
  void open_tier(const Options& options);
  // Whether storages that were made outside of the scope may be moved to the pool.
  [[nodiscard]] bool brings_in() const { return brings_in_; }
  // Note [Segments]. To be called when a scope begins, before segment_of().
  void find_segments();
  // The segment of PyTorch's allocator in which the bytes of a storage lie; invalid: none. Tells
  // the engine of a new one.
  [[nodiscard]] SegmentId segment_of(const c10::StorageImpl& storage);
  [[nodiscard]] Arena& arena() const { return *arena_; }
  // Gives up the arena when the session ends.
  [[nodiscard]] std::unique_ptr<Arena> take_arena() { return std::move(arena_); }
  [[nodiscard]] bool owns(const void* pointer) const { return arena_->contains(pointer); }

  // ---- tensors of the device ----
  // Whether the tensor's bytes are, or would be, on the device.
  [[nodiscard]] bool manages(const c10::TensorImpl& tensor) const {
    return tensor.device_type() == device_.type() && is_index(tensor.device().index());
  }
  [[nodiscard]] bool manages(const c10::StorageImpl& storage) const {
    return storage.device_type() == device_.type() && is_index(storage.device().index());
  }
  // The storage if its bytes can be managed; else null.
  [[nodiscard]] c10::StorageImpl* managed(const c10::Storage& storage) const {
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    return impl == nullptr || !manages(*impl) || impl->sym_nbytes().is_heap_allocated() ? nullptr
                                                                                        : impl;
  }
  // Whether the bytes are in a block of the pool, and not wrapped by other code.
  [[nodiscard]] bool in_pool(const c10::DataPtr& data) const {
    const c10::DeleterFnPtr deleter = data.get_deleter();
    return (deleter == hooks_.pool || deleter == hooks_.program) && owns(data.get());
  }
  // Whether this session evicted it: another one that is suspended has records of its own.
  [[nodiscard]] bool is_evicted(const c10::DataPtr& data) const {
    return data.get_deleter() == hooks_.evicted &&
           EvictedContext::unpack(data.get_context()).session == session_;
  }
  [[nodiscard]] c10::DataPtr no_bytes() const { return {nullptr, device_}; }

  // ---- records of ops ----
  [[nodiscard]] std::unique_ptr<Payload> new_payload(const c10::OperatorHandle& op);
  void discard(std::unique_ptr<Payload> payload) { release(payload.release()); }

  // ---- running kernels ----
  void kernel_started() { count_kernels(1); }
  void kernel_ended() { count_kernels(-1); }
  // May be called on any thread, without the lock.
  [[nodiscard]] bool in_kernel() const { return kernels_.load(std::memory_order_relaxed) > 0; }

  // On a thread of OpenMP that works for a kernel.
  [[nodiscard]] CaughtFailure& failure_of_workers() { return failure_of_workers_; }

  [[nodiscard]] ExternalStorages& external() { return external_; }
  // The record of a storage that has left the pool, by the address of its bytes; null if there is
  // none.
  [[nodiscard]] StorageRecord* moved_out_to(const void* address) {
    const auto found = moved_out_.find(reinterpret_cast<std::uintptr_t>(address));
    return found == moved_out_.end() ? nullptr : &records_[found->second];
  }
  // Returns that record and removes its entry: the bytes are gone.
  [[nodiscard]] StorageRecord* take_moved_out(const void* address) {
    StorageRecord* const record = moved_out_to(address);
    moved_out_.erase(reinterpret_cast<std::uintptr_t>(address));
    return record;
  }

  // Sets the message for accesses to evicted tensors; it must never be destroyed.
  void set_evicted_message(const std::string& message) { evicted_message_ = &message; }
  [[nodiscard]] const std::string& evicted_message() const { return *evicted_message_; }

  // Part of Device.
  void sweep_external() override { external_.sweep(); }

 private:
  Measurement replay(void* payload, std::span<const Location> inputs,
                     std::span<const PoolOffset> written, std::span<BlockId> outputs) override;
  void on_slow(double ratio, double most, Bytes budget) override;
  void release(void* payload) noexcept override;
  [[nodiscard]] bool may_overwrite(const void* payload, std::size_t input) const override;
  [[nodiscard]] std::size_t payload_bytes(const void* payload) const noexcept override;
  void attach(void* handle, PoolOffset offset) noexcept override;
  [[nodiscard]] bool detach(void* handle, PoolOffset offset) noexcept override;
  void take_over(void* external) noexcept override;
  [[nodiscard]] bool move_out(void* handle, PoolOffset offset, Bytes nbytes) noexcept override;
  void wait_for_outside() override;
  void taken_over() noexcept override { trim_heap(); }
  [[nodiscard]] std::vector<SegmentChange> changed_segments() override;
  [[nodiscard]] Bytes take_segment(Bytes size) override;
  void forget(void* external) noexcept override;
  void forget_released(void* external) noexcept override;
  void keep(void* external) noexcept override {
    ExternalStorages::keep(*static_cast<StorageRecord*>(external));
  }
  void let_go(void* external) noexcept override {
    external_.let_go(*static_cast<StorageRecord*>(external));
  }
  [[nodiscard]] bool hold(void* external) override {
    auto& record = *static_cast<StorageRecord*>(external);
    return external_.hold(record) && has_its_memory(record);
  }
  void copy(PoolOffset to, const Location& from, Bytes size) override;
  [[nodiscard]] void* address(const Location& location) override;
  [[nodiscard]] TierStore* tier() noexcept override { return backend_->tier(); }
  void on_tier_failure() override;
  [[nodiscard]] bool lend_tier() noexcept override;
  void poison(PoolOffset at, Bytes size) noexcept override;
  [[nodiscard]] std::optional<double> move_ns_per_byte() const override;
  [[nodiscard]] PageSizes page_sizes() const override;
  void discard(PoolOffset from, PoolOffset to) noexcept override;
  std::uint64_t hash(const Location& from, Bytes size, const void* payload,
                     std::size_t result) override;
  [[nodiscard]] std::string name(const void* payload) const override;

  // A device without an index is the only one of its type.
  [[nodiscard]] bool is_index(c10::DeviceIndex index) const {
    return !device_.has_index() || index == device_.index();
  }
  // Whether a storage that is held has the memory that its record says.
  [[nodiscard]] static bool has_its_memory(const StorageRecord& held);
  void order_replay(const StoragePtr& storage, bool external, cuda::Stream stream);
  void require_in_place(const Payload& payload, std::span<const Location> inputs,
                        torch::jit::Stack& stack);
  Nanoseconds run_unlocked(const Payload& payload, std::span<const StoragePtr> inputs,
                           std::span<const StoragePtr> written, torch::jit::Stack& stack);
  void take_fresh(const Payload& payload, torch::jit::Stack& stack, std::span<BlockId> outputs);
  // The lock makes this read and write atomic, so no read-modify-write instruction is needed.
  void count_kernels(int change) {
    kernels_.store(kernels_.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }

  const c10::Device device_;
  const std::uint32_t session_;
  std::unique_ptr<Backend> backend_;
  const Capabilities can_;
  StorageHooks hooks_;
  Engine& engine_;
  EngineMutex& mutex_;
  StorageRecords& records_;
  ExternalStorages external_;
  std::unordered_map<std::uintptr_t, RecordId> moved_out_;  // by the address of the bytes
  std::unique_ptr<Arena> arena_;
  bool tier_failed_ = false;  // a warning about it was issued
  bool brings_in_ = false;
  SegmentTable segments_;
  std::vector<std::unique_ptr<Payload>> spare_payloads_;
  CaughtFailure failure_of_workers_;
  std::atomic<int> kernels_{0};  // written under the lock, read without it
  const std::string* evicted_message_;
};

}  // namespace recoup::detail
