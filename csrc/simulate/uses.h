// When the storages of a trace are used, for policies that look ahead.
#pragma once

#include <vector>

#include "csrc/engine/base/future.h"
#include "recoup/trace.h"

namespace recoup::detail {

class TraceUses final : public Future {
 public:
  explicit TraceUses(const Trace& trace);

  // Storages in the order in which the trace numbers them.
  void add_storage(StorageId id);
  // The program is about to run its op number `op`, failed ones counted.
  void advance(std::size_t op) { op_ = op; }

  [[nodiscard]] Nanoseconds until_use(StorageId storage) const override;

 private:
  struct Use {
    std::size_t op = 0;
    bool overwrites = false;  // all of it, so nobody needs what it held
  };
  struct Storage {
    std::vector<Use> uses;  // ascending
    // How many settles come before its end; those before its birth are no use to look for.
    std::size_t exits = static_cast<std::size_t>(-1);
  };
  // The next op.
  [[nodiscard]] std::size_t now() const { return starts_.size() - 1; }
  void add_use(std::uint32_t storage, bool overwrites);

  std::vector<Storage> storages_;         // by number
  std::vector<std::size_t> scope_exits_;  // before which op each is, ascending
  std::vector<Nanoseconds> starts_;       // plain cost of all ops before each, and of all
  std::vector<std::uint32_t> numbers_;    // by StorageId
  std::uint32_t next_number_ = 0;
  std::size_t op_ = 0;
};

}  // namespace recoup::detail
