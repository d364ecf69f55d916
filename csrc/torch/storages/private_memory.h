// Memory outside of the pool that tensors of this process alone can write.
#pragma once

#include <c10/core/Storage.h>

#include "csrc/torch/storages/storage_hooks.h"

namespace recoup::detail {

// Note [Private memory]
// PyTorch makes storages over memory that it did not allocate in several ways. Behind some of them
// (NumPy, DLPack, shared memory, from_blob) is somebody who may write the bytes where recoup does
// not see it. Behind two there is none: a private mapping of a file, whose writes go to pages of
// this process, and a slice of a storage, whose bytes are those of a storage again. Checkpoints
// that are loaded by mapping them (safetensors, torch.load with mmap) are slices of one mapping. A
// tensor over such memory is like one that PyTorch allocated, as long as no other storage that
// recoup has met shares bytes with it.

// Whether the storage is a private mapping of a file.
[[nodiscard]] bool is_private_mapping(const c10::Storage& storage);
// Whether its memory is private: such a mapping, memory of the host's allocator, or a slice of
// either. `hooks` tells the allocator's memory.
[[nodiscard]] bool is_private(const c10::DataPtr& data, const StorageHooks& hooks);
// The storage that it is a slice of; null: it is no slice.
[[nodiscard]] const c10::StorageImpl* whole_of(const c10::DataPtr& data);
// The deleters of slices and mappings, by which they are known; null: none has been met.
[[nodiscard]] bool is_slice_or_mapping(c10::DeleterFnPtr deleter);

// `slice` is a slice of the storage `whole`: others are known by its deleter from now on. Does
// nothing where PyTorch makes slices in another way; then they are taken for memory of strangers.
void learn_slices(const c10::Storage& slice, const c10::Storage& whole);

}  // namespace recoup::detail
