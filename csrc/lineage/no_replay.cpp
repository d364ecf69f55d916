#include "csrc/lineage/no_replay.h"

namespace recoup::detail {

std::string_view text_of(NoReplay why) {
  switch (why) {
    case NoReplay::kNone:
      return {};
    case NoReplay::kOp:
      return "the op may give other results when it runs again";
    case NoReplay::kCustomOp:
      return "a custom op made it, without recoup.allow_replay";
    case NoReplay::kUninitialized:
      return "its memory is uninitialized";
    case NoReplay::kVaries:
      return "the order of threads changes the op's result";
    case NoReplay::kInside:
      return "it was made inside a custom op";
    case NoReplay::kOperand:
      return "the op read a tensor whose bytes recoup does not know";
    case NoReplay::kArgument:
      return "the record cannot keep an argument of the op";
    case NoReplay::kDraw:
      return "the random numbers cannot be drawn again";
    case NoReplay::kOnce:
      return "the compiled graph has effects of its own";
    case NoReplay::kResult:
      return "the op gave a tensor other memory, or returned memory that it did not make";
    case NoReplay::kOverflow:
      return "memory of the op did not fit in the budget";
    case NoReplay::kSmall:
      return "it is too small to be recorded";
    case NoReplay::kOfEscaped:
      return "it was computed from a tensor that other code can write";
    case NoReplay::kDepth:
      return "its lineage is longer than max_depth";
    case NoReplay::kOldContent:
      return "a part was written, and its former content is non-recomputable";
    case NoReplay::kState:
      return "state that is updated in place";
    case NoReplay::kFreed:
      return "the content that it was computed from is gone";
    case NoReplay::kMetadata:
      return "its record was dropped to bound the metadata";
    case NoReplay::kEscaped:
      return "its address was taken";
    case NoReplay::kInParts:
      return "an op on lists updated it in parts";
    case NoReplay::kExit:
      return "an exit of the scope restored it";
    case NoReplay::kFailedOp:
      return "an op that failed may have written it";
    case NoReplay::kGraph:
      return "a CUDA graph writes it";
  }
  return {};
}

}  // namespace recoup::detail
