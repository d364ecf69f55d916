// Results of an op: storages that did not exist before.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "csrc/base/flat_map.h"
#include "csrc/engine/base/op.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {

// All methods are called under the engine's lock.
class FreshResults {
 public:
  // The arguments must outlive this object.
  FreshResults(Session& session, const Operands& operands)
      : session_(session), operands_(operands) {}
  FreshResults(const FreshResults&) = delete;
  FreshResults& operator=(const FreshResults&) = delete;

  // Finds the fresh storages of the results. `serial`: serial number of the op's kernel.
  // `overflows`: the kernel had overflow memory.
  void collect(Arguments results, std::uint64_t serial, bool overflows, const EngineLock& lock);
  // Sets the id of storage number `i`, which the engine knows now.
  void set_id(std::size_t i, StorageId id, const EngineLock& lock);
  // Adds a storage that got new bytes outside of the pool; ignores one without bytes.
  void add_made_outside(c10::StorageImpl& storage);
  // Charges those storages now instead of at their first use, since they already occupy memory.
  // Throws OutOfBudget if there is no room; then the op fails although its kernel has run.
  void charge_made_outside(const EngineLock& lock);

  // Descriptions of composite results are read outside of any op, where they cannot be restored, so
  // they escape.
  void keep_descriptions(Arguments results);

  // The handles are StorageRecords.
  [[nodiscard]] std::span<const FreshStorage> storages() const {
    return {storages_.data(), storages_.size()};
  }
  // For each of storages(): index of the result tensor that is in it, as in Payload.
  [[nodiscard]] std::span<const std::uint32_t> tensors() const {
    return {tensors_.data(), tensors_.size()};
  }
  // Whether all results were made by this kernel, and recoup can find their storages in those of a
  // replay.
  [[nodiscard]] bool repeatable() const { return repeatable_; }
  // Whether a result is not plain.
  [[nodiscard]] bool composite() const { return composite_; }
  [[nodiscard]] static StorageRecord& record(const FreshStorage& fresh) {
    return *static_cast<StorageRecord*>(fresh.handle);
  }

 private:
  void add(const at::Tensor& tensor, std::uint32_t result, std::uint64_t serial,
           const EngineLock& lock);
  // `result`: the number of the first part, increased by the number of parts.
  void add_composite(const at::Tensor& tensor, std::uint32_t& result, std::uint64_t serial,
                     const EngineLock& lock);
  void add_storage(c10::StorageImpl& storage, std::uint32_t result, std::uint64_t serial,
                   const EngineLock& lock);
  void add_overflow(c10::StorageImpl& storage, std::uint32_t result, const EngineLock& lock);
  [[nodiscard]] bool has(BlockId block);

  Session& session_;
  const Operands& operands_;
  bool repeatable_ = true;
  bool composite_ = false;
  bool overflows_ = false;
  c10::SmallVector<FreshStorage, 4> storages_;
  c10::SmallVector<std::uint32_t, 4> tensors_;
  std::optional<FlatMap<BlockId>> blocks_;  // blocks of storages_, if there are many
  std::size_t indexed_ = 0;                 // number of storages_ whose blocks are in blocks_
  c10::SmallVector<c10::StorageImpl*, 0> made_outside_;
};

}  // namespace recoup::detail
