// Memory outside of the pool that only tensors of this process can write.
#pragma once

#include <c10/core/Storage.h>

#include "csrc/torch/backend/storage_hooks.h"

namespace recoup::detail {

// Note [Private memory]
// PyTorch makes storages over memory that it did not allocate in several ways. In some of them
// (NumPy, DLPack, shared memory, from_blob) other code may write the bytes unseen by recoup. In two
// it cannot: a private mapping of a file, whose writes go to pages of this process, and a slice of
// a storage, whose bytes belong to that storage. Checkpoints that are loaded by mapping them
// (safetensors, torch.load with mmap) are slices of one mapping. A tensor over such memory is
// treated like one that PyTorch allocated, as long as no other storage that recoup has met shares
// bytes with it.

// Whether the storage is a private mapping of a file.
[[nodiscard]] bool is_private_mapping(const c10::Storage& storage);
// Whether its memory is private: such a mapping, memory of the host's allocator, or a slice of
// either. `hooks` identifies the allocator's memory.
[[nodiscard]] bool is_private(const c10::DataPtr& data, const StorageHooks& hooks);
// The storage of which `data` is a slice; null if it is no slice.
[[nodiscard]] const c10::StorageImpl* whole_of(const c10::DataPtr& data);
// Whether it is the deleter of a slice or of a mapping. False until one has been met.
[[nodiscard]] bool is_slice_or_mapping(c10::DeleterFnPtr deleter);

// Learns the deleter of slices: `slice` is a slice of the storage `whole`. Does nothing if PyTorch
// makes slices in another way; then slices count as memory that other code may write.
void learn_slices(const c10::Storage& slice, const c10::Storage& whole);

}  // namespace recoup::detail
