// Composite kernels that access tensors' bytes by pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace recoup::detail {

// Note [Pointer readers]
// A composite kernel runs above autograd and so above recoup, which sees only the ops that it
// calls. Some take the address of an argument, or of an inner op's result, and use it while other
// ops run, which could move or evict the bytes. Those few are entered through a kernel of recoup's,
// which restores the bytes and holds them until the composite returns. Most read lengths by
// pointer, so of these only integers are held, and all that they compute stays recordable. A test
// fails when PyTorch adds a composite, so that it is reviewed.
enum class Pointers : std::uint8_t {
  kIntegers,   // integer tensors: arguments, and what inner ops read and make
  kArguments,  // any argument
  kAny,        // any argument, and what inner ops read and make; it may write: an opaque op
};

struct PointerReader {
  std::string_view op;  // with its overload: "aten::lstm.data"
  Pointers pointers;
};

std::span<const PointerReader> pointer_readers();
std::optional<Pointers> pointers_of(std::string_view op);

}  // namespace recoup::detail
