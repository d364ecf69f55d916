// Verifier: checks that replays give the same bits as the first run (Options::check_replays).
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
  // All arguments must outlive this object.
  Verifier(const Options& options, Device& device, const Lineage& lineage, Stats& stats)
      : options_(options), device_(device), lineage_(lineage), stats_(stats) {}

  // Whether a replay of the op must give the same bits: its result and all its inputs are
  // initialized.
  [[nodiscard]] bool defined(const OpRecord& record) const;
  // Stores the hash of a value that is result number `result` of such an op.
  void remember(ValueId id, const Location& at, const OpRecord& record, std::size_t result);
  // Throws ReplayDiffers if the bits differ from those remembered. Does nothing if the value was
  // not remembered.
  void compare(ValueId id, const Location& at, OpId op);
  void forget(ValueId id) {
    if (options_.check_replays) [[unlikely]] {
      hashes_.erase(id);
    }
  }

 private:
  struct ResultHash {
    std::uint64_t hash = 0;
    std::size_t result = 0;  // number of the result among those of its op
  };

  const Options& options_;
  Device& device_;
  const Lineage& lineage_;
  Stats& stats_;
  std::unordered_map<ValueId, ResultHash> hashes_;
};

}  // namespace recoup::detail
