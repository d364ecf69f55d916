// Verifier: whether replays give the bits of the first run (Options::verify).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "csrc/engine/base/device.h"
#include "csrc/engine/base/op.h"
#include "csrc/lineage/lineage.h"
#include "recoup/options.h"
#include "recoup/stats.h"

namespace recoup::detail {

class Verifier {
 public:
  // All must outlive it.
  Verifier(const Options& options, Device& device, const Lineage& lineage, Stats& stats)
      : options_(options), device_(device), lineage_(lineage), stats_(stats) {}

  // Whether all that the op read is the same in every replay: what somebody left undefined is not.
  [[nodiscard]] bool defined(const OpRecord& record) const;
  // Of a value that is such an op's result number `result`.
  void remember(ValueId id, const Location& at, const OpRecord& record, std::size_t result);
  // Throws ReplayDiffers when the value was remembered with other bits.
  void compare(ValueId id, const Location& at, OpId op);
  void forget(ValueId id) {
    if (options_.verify) [[unlikely]] {
      hashes_.erase(id);
    }
  }

 private:
  struct ResultHash {
    std::uint64_t hash = 0;
    std::size_t result = 0;  // which of its op
  };

  const Options& options_;
  Device& device_;
  const Lineage& lineage_;
  Stats& stats_;
  std::unordered_map<ValueId, ResultHash> hashes_;
};

}  // namespace recoup::detail
