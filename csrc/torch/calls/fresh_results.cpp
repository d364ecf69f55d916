#include "csrc/torch/calls/fresh_results.h"

#include <algorithm>

#include "csrc/torch/compat/storage_access.h"
#include "csrc/torch/overflow/overflow_results.h"

namespace recoup::detail {

void FreshResults::collect(Arguments results, std::uint64_t serial, bool overflows,
                           const EngineLock& lock) {
  overflows_ = overflows;
  std::uint32_t result = 0;
  for_each_tensor(results, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    if (is_plain(*tensor.unsafeGetTensorImpl())) [[likely]] {
      add(tensor, result++, serial, lock);
    } else {
      add_composite(tensor, result, serial, lock);
    }
  });
}

void FreshResults::add_made_outside(c10::StorageImpl& storage) {
  if (storage._mutable_data_ptr_no_checks().get() != nullptr) {
    made_outside_.push_back(&storage);
  }
}

void FreshResults::charge_made_outside(const EngineLock& lock) {
  for (c10::StorageImpl* const storage : made_outside_) {
    (void)session_.storages(lock).find(*storage);
  }
}

void FreshResults::set_id(std::size_t i, StorageId id, const EngineLock& lock) {
  StorageRecord& known = record(storages_[i]);
  known.id = id;
  if (storages_[i].overflow != OverflowKey::kNone) [[unlikely]] {
    session_.storages(lock).overflow_is_known(known);
  }
}

bool FreshResults::has(BlockId block) {
  if (storages_.size() < Operands::kFew) [[likely]] {
    return std::any_of(storages_.begin(), storages_.end(),
                       [block](const FreshStorage& fresh) { return fresh.block == block; });
  }
  if (!blocks_) {
    blocks_.emplace();
  }
  for (; indexed_ < storages_.size(); ++indexed_) {
    if (const BlockId added = storages_[indexed_].block; added.valid()) {
      blocks_->insert(added.index(), added);
    }
  }
  return blocks_->get(block.index()).valid();
}

void FreshResults::add(const at::Tensor& tensor, std::uint32_t result, std::uint64_t serial,
                       const EngineLock& lock) {
  const bool plain = for_each_storage(session_.tensors(), tensor, [&](c10::StorageImpl& storage) {
    add_storage(storage, result, serial, lock);
  });
  // A replay makes small results on the CPU again and drops them: the program has the first ones.
  repeatable_ &= plain || is_small_on_cpu(session_.tensors(), tensor);
}

void FreshResults::add_composite(const at::Tensor& tensor, std::uint32_t& result,
                                 std::uint64_t serial, const EngineLock& lock) {
  composite_ = true;
  if (!CompositeShell::of(tensor)) {
    add(tensor, result, serial, lock);
    repeatable_ = false;
    return;
  }
  for_each_part(tensor, [&](const at::Tensor& part) { add(part, result++, serial, lock); });
}

void FreshResults::add_storage(c10::StorageImpl& storage, std::uint32_t result,
                               std::uint64_t serial, const EngineLock& lock) {
  if (operands_.of(&storage) != nullptr) {
    return;
  }
  Storages& storages = session_.storages(lock);
  const BlockId block = storages.unowned_block(storage);
  if (!block.valid()) {
    // Known already, without bytes, or not in the pool.
    if (storage._mutable_data_ptr_no_checks().get() != nullptr &&
        !storages.find_known(storage).valid()) {
      if (overflows_ && data_of(storage).get_deleter() == &delete_overflow) {
        add_overflow(storage, result, lock);
      } else {
        made_outside_.push_back(&storage);
      }
    }
    return;
  }
  if (has(block)) {
    return;
  }
  if (session_.memory().serial(block, lock) < serial) {
    repeatable_ = false;  // allocated earlier and only returned by this kernel
  }
  storages_.push_back({.block = block,
                       .nbytes = Bytes(static_cast<std::int64_t>(storage.nbytes())),
                       .handle = &storages.add_record(storage)});
  tensors_.push_back(result);
}

void FreshResults::add_overflow(c10::StorageImpl& storage, std::uint32_t result,
                                const EngineLock& lock) {
  const OverflowKey key = overflow_key(data_of(storage).get());
  if (std::any_of(storages_.begin(), storages_.end(),
                  [key](const FreshStorage& fresh) { return fresh.overflow == key; })) {
    return;
  }
  storages_.push_back({.block = {},
                       .nbytes = Bytes(static_cast<std::int64_t>(storage.nbytes())),
                       .handle = &session_.storages(lock).add_overflow(storage),
                       .overflow = key});
  tensors_.push_back(result);
}

void FreshResults::keep_descriptions(Arguments results) {
  const EngineLock lock(session_.mutex());
  const auto keep = [&](const c10::Storage& storage) {
    if (c10::StorageImpl* const impl = session_.tensors().managed(storage)) {
      if (const StorageId id = session_.storages(lock).find(*impl); id.valid()) {
        session_.engine(lock).user().escape(id);
      }
    }
  };
  for_each_tensor(results, [&](const at::Tensor& tensor, std::size_t, std::int64_t) {
    for_each_description(tensor, keep);
  });
}

}  // namespace recoup::detail
