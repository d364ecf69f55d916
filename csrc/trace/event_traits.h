// What the numbers of each kind of event are. The writer, the reader, the validator, the bindings
// and whatever renumbers storages work from this table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "csrc/trace/format.h"
#include "recoup/trace.h"

namespace recoup::detail {

// What TraceEvent::index is, and with that how it is written.
enum class EventIndex : std::uint8_t {
  kUnwritten,  // 0, or a number of kEventVariants
  kNumber,     // a number other than that of a storage
  kStorage,    // number of a live storage
  kOwnRecord,  // number of an op, a plan or an op on lists, which has a record of its own
};

struct EventTraits {
  TraceEvent::Kind kind;
  std::string_view name;  // in Python and in messages
  EventIndex index;
  bool has_size = false;       // whether TraceEvent::size counts; it is written after the index
  bool makes_storage = false;  // whether a storage appears with the event itself
};

// By number of the kind.
inline constexpr std::array kEventTraits{
    EventTraits{TraceEvent::Kind::kExternal, "external", EventIndex::kUnwritten, true, true},
    EventTraits{TraceEvent::Kind::kAllocate, "allocate", EventIndex::kUnwritten, true},
    EventTraits{TraceEvent::Kind::kFree, "free", EventIndex::kNumber},
    EventTraits{TraceEvent::Kind::kAdopt, "adopt", EventIndex::kNumber, true, true},
    EventTraits{TraceEvent::Kind::kDie, "die", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kOp, "op", EventIndex::kOwnRecord},
    EventTraits{TraceEvent::Kind::kEscape, "escape", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kPin, "pin", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kUnpin, "unpin", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kEvict, "evict", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kDisown, "disown", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kStep, "step", EventIndex::kNumber},
    EventTraits{TraceEvent::Kind::kScopeExit, "scope_exit", EventIndex::kUnwritten},
    EventTraits{TraceEvent::Kind::kPart, "part", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kPartsEnd, "parts_end", EventIndex::kUnwritten},
    EventTraits{TraceEvent::Kind::kLeave, "leave", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kTime, "time", EventIndex::kNumber},
    EventTraits{TraceEvent::Kind::kSegment, "segment", EventIndex::kNumber, true},
    EventTraits{TraceEvent::Kind::kEscapeEnd, "escape_end", EventIndex::kStorage},
    EventTraits{TraceEvent::Kind::kRule, "rule", EventIndex::kStorage, true},
    EventTraits{TraceEvent::Kind::kPlan, "plan", EventIndex::kOwnRecord},
    EventTraits{TraceEvent::Kind::kParts, "parts", EventIndex::kOwnRecord},
};

// Throws std::out_of_range for a number that is no kind.
constexpr const EventTraits& traits_of(TraceEvent::Kind kind) {
  return kEventTraits.at(static_cast<std::size_t>(kind));
}

constexpr bool traits_are_in_order() {
  for (std::size_t i = 0; i < kEventTraits.size(); ++i) {
    if (kEventTraits[i].kind != static_cast<TraceEvent::Kind>(i)) {
      return false;
    }
  }
  return true;
}
static_assert(traits_are_in_order());

// The tag of the kind as such.
constexpr std::uint64_t tag_of(TraceEvent::Kind kind) {
  return static_cast<std::uint64_t>(RecordTag::kEvent) + static_cast<std::uint64_t>(kind);
}

// Whether TraceEvent::index is the number of a storage.
constexpr bool is_of_storage(TraceEvent::Kind kind) {
  return traits_of(kind).index == EventIndex::kStorage;
}

// Events whose index is not 0 where the kind as such does not write it.
struct EventVariant {
  RecordTag tag;
  TraceEvent::Kind kind;
  std::uint32_t first;  // the least index
  bool has_number;      // whether index - first is written, after the size; otherwise it is 0
};
inline constexpr std::array kEventVariants{
    EventVariant{RecordTag::kOutside, TraceEvent::Kind::kExternal, 1, false},
    EventVariant{RecordTag::kHold, TraceEvent::Kind::kAllocate, 1, true},
    EventVariant{RecordTag::kInSegment, TraceEvent::Kind::kExternal, 2, true},
};

}  // namespace recoup::detail
