// What an op made: storages that did not exist before.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <span>

#include "csrc/base/flat_map.h"
#include "csrc/engine/base/op.h"
#include "csrc/torch/calls/operands.h"
#include "csrc/torch/session/session.h"

namespace recoup::detail {

// Called under the engine's lock.
class FreshResults {
 public:
  // They outlive it.
  FreshResults(Session& session, const Operands& operands)
      : session_(session), operands_(operands) {}
  FreshResults(const FreshResults&) = delete;
  FreshResults& operator=(const FreshResults&) = delete;

  // Finds those of the results. `serial`: of the op's kernel.
  void collect(Arguments results, std::uint64_t serial, const EngineLock& lock);
  // One that was given new bytes outside of the pool, or has none.
  void add_made_outside(c10::StorageImpl& storage);
  // Now, and not when an op comes to see them: they take their room already. Throws OutOfBudget
  // where there is none; then the op fails, though it has been done.
  void charge_made_outside(const EngineLock& lock);

  // Their handles are StorageRecords.
  [[nodiscard]] std::span<const FreshStorage> storages() const {
    return {storages_.data(), storages_.size()};
  }
  // For each: which tensor of the results (lists flattened) is in it.
  [[nodiscard]] const c10::SmallVector<std::uint16_t, 2>& tensors() const { return tensors_; }
  // Whether all is plain, and made by this kernel: a replay makes it again.
  [[nodiscard]] bool repeatable() const { return repeatable_; }
  // Whether a result is not plain.
  [[nodiscard]] bool composite() const { return composite_; }
  [[nodiscard]] static StorageRecord& record(const FreshStorage& fresh) {
    return *static_cast<StorageRecord*>(fresh.handle);
  }

 private:
  void add(const at::Tensor& tensor, std::uint16_t result, std::uint64_t serial,
           const EngineLock& lock);
  void add_storage(c10::StorageImpl& storage, std::uint16_t result, std::uint64_t serial,
                   const EngineLock& lock);
  [[nodiscard]] bool has(BlockId block);

  Session& session_;
  const Operands& operands_;
  bool repeatable_ = true;
  bool composite_ = false;
  c10::SmallVector<FreshStorage, 2> storages_;
  c10::SmallVector<std::uint16_t, 2> tensors_;
  std::optional<FlatMap<BlockId>> blocks_;  // of each, when they are many
  c10::SmallVector<c10::StorageImpl*, 0> made_outside_;
};

}  // namespace recoup::detail
