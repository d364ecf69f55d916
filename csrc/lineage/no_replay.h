// NoReplay: why an op is not replayed, or why a value is non-recomputable.
#pragma once

#include <cstdint>
#include <string_view>

namespace recoup::detail {

enum class NoReplay : std::uint8_t {
  kNone,           // it is replayed; of a non-recomputable value: no op made it
  kOp,             // traits: the op may give other results when it runs again
  kCustomOp,       // its kernel is not ATen's own, and the user has not allowed replays
  kUninitialized,  // nothing has written its bytes
  kVaries,         // the order of threads on a GPU may change the result
  kInside,         // it was made inside a custom op, which may hold its address
  kOperand,        // the bytes of an operand are not known
  kArgument,       // the record cannot keep an argument
  kDraw,           // the generator cannot be set back
  kOnce,           // a compiled graph with effects of its own
  kResult,         // memory of a result, or of a tensor that it wrote, was not made by the kernel
  kOverflow,       // its kernel had overflow memory
  kSmall,          // Options::small_result_bytes
  kOfEscaped,      // it was computed from a tensor whose address was taken
  kDepth,          // Options::max_depth
  kOldContent,     // an op wrote a part of it, and its former content is non-recomputable
  kState,          // Note [State]
  kFreed,          // Note [Dead sources]
  kMetadata,       // Records::bound_metadata
  kEscaped,        // its address was taken
  kInParts,        // an op on lists ran in parts
  kExit,           // an exit of the scope restored it
  kFailedOp,       // an op that failed may have written it
  kGraph,          // a CUDA graph writes it
};

// A clause for a report; empty for kNone.
[[nodiscard]] std::string_view text_of(NoReplay why);

}  // namespace recoup::detail
