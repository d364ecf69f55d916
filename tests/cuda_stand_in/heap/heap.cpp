// Counts the allocations on the heap of a process that preloads this library.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#define RECOUP_STAND_IN_API extern "C" __attribute__((visibility("default")))

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

struct Counter {
  std::atomic<pid_t> thread = 0;
  std::atomic<std::int64_t> allocations = 0;
};

constexpr std::size_t kMostThreads = 4096;  // the last counter is that of all further threads
Counter counters[kMostThreads];
std::atomic<std::size_t> threads = 0;

Counter& counter() {
  thread_local Counter* mine = nullptr;
  if (mine == nullptr) {
    mine = &counters[std::min(threads.fetch_add(1), kMostThreads - 1)];
    mine->thread = gettid();
  }
  return *mine;
}

void count() { counter().allocations.fetch_add(1, std::memory_order_relaxed); }

constexpr int kInvalid = 22;   // EINVAL
constexpr int kNoMemory = 12;  // ENOMEM

}  // namespace

// The number of a thread's allocations so far.
RECOUP_STAND_IN_API std::int64_t stand_in_heap_allocations(pid_t thread) {
  std::int64_t sum = 0;
  for (const Counter& each : counters) {
    sum += each.thread == thread ? each.allocations.load(std::memory_order_relaxed) : 0;
  }
  return sum;
}

RECOUP_STAND_IN_API void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}

RECOUP_STAND_IN_API void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}

RECOUP_STAND_IN_API void* realloc(void* memory, std::size_t size) {
  count();
  return __libc_realloc(memory, size);
}

RECOUP_STAND_IN_API int posix_memalign(void** made, std::size_t alignment, std::size_t size) {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1)) != 0) {
    return kInvalid;
  }
  count();
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) {
    return kNoMemory;
  }
  *made = memory;
  return 0;
}

RECOUP_STAND_IN_API void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
