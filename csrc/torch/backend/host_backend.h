// HostBackend: the CPU beneath a session.
#pragma once

#include <memory>

#include "csrc/torch/backend/backend.h"

namespace recoup::detail {

class HostBackend final : public Backend {
 public:
  // `allocator_of_cpu`: see make_backend.
  explicit HostBackend(c10::Allocator& allocator_of_cpu);

  [[nodiscard]] StorageHooks complete(StorageHooks hooks) const override;
  [[nodiscard]] std::unique_ptr<MemoryRoute> make_route(ProgramMemory& memory,
                                                        const Arena& arena) override;
  [[nodiscard]] Options adjust(Options options) const override;
  [[nodiscard]] std::unique_ptr<Arena> make_arena(const Options& options) override;
  void back(Arena& arena, Bytes size) override;
  [[nodiscard]] PageSizes page_sizes() const override { return HostArena::page_sizes(); }
  [[nodiscard]] void* copy_out(const void* memory, std::size_t size) noexcept override;
  void open_tier(const Options& options) override;
  // Opens a file in the system's directory for temporary files.
  [[nodiscard]] bool lend_tier() noexcept override;
  [[nodiscard]] TierStore* tier() override { return tier_.get(); }
  void copy(void* to, const void* from, Bytes size) noexcept override;
  [[nodiscard]] double move_ns_per_byte() override;
  [[nodiscard]] std::uint64_t hash(
      const void* memory, Bytes size,
      c10::function_ref<std::uint64_t(const void* memory)> of_defined) override;

 private:
  c10::Allocator& allocator_of_cpu_;
  std::unique_ptr<TierStore> tier_;
};

}  // namespace recoup::detail
