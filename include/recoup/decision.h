// Decisions of the engine.
#pragma once

#include <cstdint>

namespace recoup {

// A decision of an engine.
struct Decision {
  // What can be decided.
  enum class Kind : std::uint8_t {
    kEvict,   // `what`: id of the value
    kReplay,  // `what`: number of the op among all recorded ops
    kMove,    // `what`: id of the value; `where`: its new offset
    kSpill,   // `what`: id of the value
    kFetch,   // `what`: id of the value
  };
  Kind kind = Kind::kEvict;  // what was decided
  std::uint64_t what = 0;    // subject of the decision, as defined by `kind`
  std::int64_t where = 0;    // new offset for kMove, in bytes; otherwise 0
  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace recoup
