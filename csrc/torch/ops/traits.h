// What recoup has to know of an op beyond its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/torch/compat/pointer_readers.h"
#include "csrc/torch/ops/overrides.h"
#include "recoup/torch.h"

namespace recoup::detail {

enum class OpKind : std::uint8_t {
  kTransparent,  // not an op on tensors' bytes, or made of ops that are seen one by one: passed on
  kView,         // reads and writes no bytes and makes no storage: run and forgotten
  kRecorded,     // runs under the engine's eyes
  kLazyClone,    // copy-on-write: run as a copy
  kOtherStream,  // record_stream: says something of an address, not of a value
  kOpaque,       // a kernel that is not ATen's own: Note [Opaque ops]
  kReader,       // a composite that looks at bytes by pointer: Note [Pointer readers]
  kListLoop,     // on the CPU made of ops that are seen one by one: Note [Ops on lists]
};

// Whether two runs of an op on a GPU may differ in their bits, because sums are added up in the
// order in which threads get there.
enum class VariesOnGpu : std::uint8_t {
  kNo,
  kUnlessDeterministic,       // torch.use_deterministic_algorithms
  kUnlessDeterministicCudnn,  // that, or torch.backends.cudnn.deterministic
};

// Whether an op has been unregistered; of the traits that are asked, not of those they are copied
// from.
class Unregistered {
 public:
  Unregistered() = default;
  Unregistered(const Unregistered& /*other*/) {}
  Unregistered& operator=(const Unregistered& /*other*/) { return *this; }
  void set() { set_.store(true, std::memory_order_release); }
  [[nodiscard]] bool is_set() const { return set_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> set_{false};
};

struct OpTraits {
  OpKind kind = OpKind::kRecorded;
  bool overridden = false;             // an op of ATen's with a kernel of somebody else's
  bool repeatable = false;             // may be replayed
  bool random = false;                 // draws from a generator
  bool captures = false;               // may keep its tensors beyond its return: they escape
  bool collective = false;             // of c10d: Note [In collective]
  bool waits = false;                  // for functional collectives on its argument
  bool compiled = false;               // a call of a compiled graph: Note [Compiled graphs]
  bool foreign = false;                // its kernel may touch tensors that no argument names
  bool metadata_only = false;          // reads shapes of its arguments, not bytes
  bool overwrites_self = false;        // replaces all of its first argument and reads nothing of it
  bool verifiable = true;              // false: some result bytes are uninitialized
  Pointers pointers = Pointers::kAny;  // of a reader
  bool matrix_product = false;  // costs more than its bytes: on a GPU a first guess takes that in
  bool in_parts = false;        // runs for one tensor of its lists after the other
  bool gated = false;           // draws behind a gate: Note [The generator's gate]
  VariesOnGpu varies_on_gpu = VariesOnGpu::kNo;
  std::int8_t varies_if = -1;  // an argument that must be true for that
  std::uint64_t writes = 0;    // bit i: argument i is written, by schema or by the tables
  // Bit i: argument i is written in passing and its content does not reach the results; a replay
  // gets a scratch tensor instead (BatchNorm's running statistics). Only when condition_arg is
  // true.
  std::uint64_t left_out = 0;
  std::int8_t condition_arg = -1;
  // Of one that draws: the argument for a generator; -1: there is none. Where only another overload
  // has one, which is otherwise the same, that overload and its argument.
  std::int8_t generator_slot = -1;
  std::optional<c10::OperatorHandle> with_generator;
  std::string name;  // "aten::add.Tensor"
  Unregistered unregistered;
};

// What the tables behind traits name.
std::vector<NamedOp> known_names();

// Of an op of this PyTorch, for calls of this reach. `allowed`: the user vouches that it can be
// repeated.
[[nodiscard]] OpTraits traits_of(const c10::OperatorHandle& op, bool allowed, Reach reach);
// Whether an op of this name is PyTorch's own.
[[nodiscard]] bool is_atens(std::string_view name);

}  // namespace recoup::detail
