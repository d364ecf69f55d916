// Composite kernels that look at tensors' bytes by pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace recoup::detail {

// Note [Pointer readers]
// A composite kernel runs above autograd, and so above us: we see the ops that it calls and not
// itself. Some take the address of an argument, or of what an op inside gave them, and go on with
// it while other ops run: those could move or evict it. So these few are entered through a kernel
// of ours, which brings back what they look at and holds it until they return; what they look at is
// mostly lengths, so of the others only integers are held, and all that is computed stays
// recordable. Which composites there are is known: a test fails when there is a new one.
enum class Pointers : std::uint8_t {
  kIntegers,   // to integers: arguments, and what ops inside read and make of them
  kArguments,  // to any argument
  kAny,        // to any argument and to what ops inside read and make; it may write: a guest
};

struct PointerReader {
  std::string_view op;  // with its overload: "aten::lstm.data"
  Pointers pointers;
};

std::span<const PointerReader> pointer_readers();
std::optional<Pointers> pointers_of(std::string_view op);

}  // namespace recoup::detail
