// Watching and forbidding access to a storage, in PyTorch 2.13 and in earlier versions.
//
// Before 2.13 there is no notification when code takes a storage's address and writes to it: see
// Note [Unseen writers] in storages.cpp for what is not noticed then.
#pragma once

#include <c10/core/StorageImpl.h>

namespace recoup::detail {

// The storage's pointer, even if the storage forbids access. Calls no hook.
inline c10::DataPtr& data_of(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
}

using AccessHook = void (*)(c10::StorageImpl*);

#if __has_include(<c10/core/StorageMaterializer.h>)

inline bool has_access_hook(const c10::StorageImpl& storage) { return storage.has_materializer(); }
// The hook has no public getter, but an explicit instantiation may name a private member.
template <AccessHook c10::StorageImpl::* kHook>
struct HookMember {
  friend AccessHook access_hook(const c10::StorageImpl& storage) { return storage.*kHook; }
};
// The storage's hook; null if there is none.
AccessHook access_hook(const c10::StorageImpl& storage);
template struct HookMember<&c10::StorageImpl::materialize_fn_>;
inline void set_access_hook(c10::StorageImpl& storage, AccessHook hook) {
  storage.set_materializer(hook);
}
inline void clear_access_hook(c10::StorageImpl& storage) { storage.clear_materializer(); }

// Reverts release_data_and_set_meta_custom_data_ptr_error_msg_.
inline void allow_access(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }

#else

inline bool has_access_hook(const c10::StorageImpl& /*storage*/) { return false; }
inline AccessHook access_hook(const c10::StorageImpl& /*storage*/) { return nullptr; }
inline void set_access_hook(c10::StorageImpl& /*storage*/, AccessHook /*hook*/) {}
inline void clear_access_hook(c10::StorageImpl& /*storage*/) {}

// The flag has no public setter, but an explicit instantiation may name a private member.
template <bool c10::StorageImpl::* kFlag>
struct ForbiddenFlag {
  friend bool& forbidden_flag(c10::StorageImpl& storage) { return storage.*kFlag; }
};
bool& forbidden_flag(c10::StorageImpl& storage);
template struct ForbiddenFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

inline void allow_access(c10::StorageImpl& storage) {
  forbidden_flag(storage) = false;
  // Updates what is derived from the flags.
  c10::DataPtr same = std::move(storage._mutable_data_ptr_no_checks());
  storage.set_data_ptr_noswap(std::move(same));
}

#endif

}  // namespace recoup::detail
