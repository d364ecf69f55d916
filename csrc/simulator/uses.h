// TraceUses: when the storages of a trace are used, for policies that look ahead.
#pragma once

#include <vector>

#include "csrc/engine/base/future.h"
#include "recoup/trace.h"

namespace recoup::detail {

class TraceUses final : public Future {
 public:
  explicit TraceUses(const Trace& trace);

  // Registers storages in the order in which the trace numbers them.
  void add_storage(StorageId id);
  // The program is about to run its op number `op`; failed ops count.
  void advance(std::size_t op) { op_ = op; }

  [[nodiscard]] Nanoseconds until_use(StorageId storage) const override;

 private:
  struct Use {
    std::size_t op = 0;
    bool overwrites = false;  // it replaces all bytes, so the old content is not needed
  };
  struct Storage {
    std::vector<Use> uses;  // ascending
    // Number of scope exits before the storage dies. Those before its birth are never looked up.
    std::size_t exits = static_cast<std::size_t>(-1);
  };
  // Number of the next op.
  [[nodiscard]] std::size_t now() const { return starts_.size() - 1; }
  void add_use(std::uint32_t storage, bool overwrites);

  std::vector<Storage> storages_;         // by number in the trace
  std::vector<std::size_t> scope_exits_;  // number of the op after each scope exit, ascending
  std::vector<Nanoseconds> starts_;     // total cost of all previous ops, by op, with an end marker
  std::vector<std::uint32_t> numbers_;  // by StorageId
  std::uint32_t next_number_ = 0;
  std::size_t op_ = 0;
};

}  // namespace recoup::detail
