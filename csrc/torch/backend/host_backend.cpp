#include "csrc/torch/backend/host_backend.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/base/strings.h"
#include "csrc/disk/spill_file.h"
#include "csrc/torch/backend/host_route.h"
#include "recoup/torch.h"

namespace recoup::detail {
namespace {

// Time in nanoseconds per byte of the fastest of a few copies, since the others were disturbed.
double measure_copy() {
  constexpr std::size_t kBytes = 16U << 20U;  // larger than most caches, like what is moved
  constexpr int kCopies = 3;
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kCopies; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memmove(to.data(), from.data(), kBytes);
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    asm volatile("" : : "r"(to.data()) : "memory");  // keeps the compiler from removing the copy
    best = std::min(best, taken.count());
  }
  return best / static_cast<double>(kBytes);
}

}  // namespace

HostBackend::HostBackend(c10::Allocator& allocator_of_cpu)
    : Backend({.leaves_pool = true, .copies_in_pool = true}), allocator_of_cpu_(allocator_of_cpu) {}

StorageHooks HostBackend::complete(StorageHooks hooks) const {
  hooks.program = c10::GetDefaultCPUAllocator()->raw_deleter();
  return hooks;
}

std::unique_ptr<MemoryRoute> HostBackend::make_route(ProgramMemory& /*memory*/,
                                                     const Arena& /*arena*/) {
  return std::make_unique<HostRoute>(allocator_of_cpu_);
}

Options HostBackend::adjust(Options options) const {
  options.spill_to_leave = true;
  return options;
}

// The budget may grow up to the machine's memory; addresses cost nothing.
std::unique_ptr<Arena> HostBackend::make_arena(const Options& options) {
  return std::make_unique<HostArena>(std::max(options.budget, physical_memory()));
}

void HostBackend::back(Arena& arena, Bytes size) {
  if (size > arena.size()) {
    throw std::runtime_error(str_cat("recoup: a budget of ", size.count(),
                                     " bytes is larger than the memory of the machine, ",
                                     arena.size().count(), " bytes"));
  }
}

void* HostBackend::copy_out(const void* memory, std::size_t size) noexcept {
  void* own = nullptr;
  try {
    own = c10::GetDefaultCPUAllocator()->raw_allocate(size);
  } catch (const std::exception&) {  // there is no memory
  }
  if (own != nullptr) {
    std::memcpy(own, memory, size);
  }
  return own;
}

void HostBackend::open_tier(const Options& options) {
  if (options.spill_unit.count() % SpillFile::kBlock != 0) {
    throw std::invalid_argument(
        str_cat("recoup: a disk is written in units of ", SpillFile::kBlock, " bytes"));
  }
  tier_ = std::make_unique<SpillFile>(options.spill_dir);
}

bool HostBackend::lend_tier() noexcept {
  if (tier_ == nullptr) {
    try {
      tier_ = std::make_unique<SpillFile>(std::string());
    } catch (const std::exception&) {
      return false;  // the directory is in memory, or no file can be made there
    }
  }
  return true;
}

void HostBackend::copy(void* to, const void* from, Bytes size) noexcept {
  std::memmove(to, from, static_cast<std::size_t>(size.count()));
}

double HostBackend::move_ns_per_byte() {
  static const double measured = measure_copy();
  return measured;
}

std::uint64_t HostBackend::hash(const void* memory, Bytes /*size*/,
                                c10::function_ref<std::uint64_t(const void* memory)> of_defined) {
  return of_defined(memory);
}

}  // namespace recoup::detail
