#include "csrc/torch/session/allocator.h"

#include <c10/core/CPUAllocator.h>

#include <vector>

#include "csrc/torch/compat/storage_access.h"
#include "csrc/torch/overflow/overflow_results.h"
#include "csrc/torch/session/session.h"
#include "csrc/torch/session/sessions.h"

namespace recoup::detail {

namespace {

// Note [Leaving the pool]. The storage's session may have ended.
void free_moved_out(void* pointer) {
  std::vector<Session*> sessions = Sessions::suspended();
  sessions.push_back(Sessions::on_cpu());
  for (Session* const session : sessions) {
    if (session != nullptr) {
      const EngineLock lock(session->mutex());
      session->storages(lock).moved_out_died(pointer);
    }
  }
  plain_allocator()->raw_deallocate(pointer);
}

}  // namespace

void pool_delete(void* pointer) {
  const Visit visit;
  if (Session* const session = Sessions::owner_of(pointer)) {
    session->memory().free(pointer);
  } else if (!release_retired(pointer)) {
    free_moved_out(pointer);
  }
}

void evicted_delete(void* context) {
  const Visit visit;
  const EvictedContext evicted = EvictedContext::unpack(context);
  if (Session* const session = Sessions::numbered(evicted.session)) {
    const EngineLock lock(session->mutex());
    session->storages(lock).evicted_died(evicted.record);
  }  // else the session ended while the storage was dying
}

bool is_evicted(const c10::StorageImpl& storage) {
  return data_of(storage).get_deleter() == &evicted_delete;
}

Session* session_of_evicted(const c10::StorageImpl& storage) {
  return is_evicted(storage)
             ? Sessions::numbered(EvictedContext::unpack(data_of(storage).get_context()).session)
             : nullptr;
}

c10::Allocator* plain_allocator() { return c10::GetDefaultCPUAllocator(); }

namespace {

class PoolAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t nbytes) override {
    const Visit visit;
    Session* const session = Sessions::on_cpu();
    if (session == nullptr || !session->memory().in_scope(nbytes)) {
      return plain_allocator()->allocate(nbytes);
    }
    return session->memory().allocate(nbytes);
  }

  // Called by raw_deallocate: the memory may be the pool's or the plain allocator's.
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &delete_either; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static void delete_either(void* pointer) {
    const Visit visit;
    if (Session* const session = Sessions::owner_of(pointer)) {
      session->memory().free(pointer);
    } else if (!release_retired(pointer) && !release_overflow(pointer)) {
      plain_allocator()->raw_deallocate(pointer);
    }
  }
};

}  // namespace

c10::Allocator* pool_allocator() {
  // Never destroyed: storages keep a pointer to their allocator.
  static auto* const allocator = new PoolAllocator;
  return allocator;
}

}  // namespace recoup::detail
