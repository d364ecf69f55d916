// What recoup has to know about an op in addition to its schema.
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
#include "recoup/bindings.h"

namespace recoup::detail {

enum class OpKind : std::uint8_t {
  kTransparent,  // not an op on tensors' bytes, or made of ops that are seen one by one
  kView,         // reads and writes no bytes and makes no storage: not recorded
  kRecorded,     // goes through the engine
  kLazyClone,    // copy-on-write: run as a copy
  kOtherStream,  // record_stream: refers to an address, not to a value
  kOpaque,       // a kernel that is not ATen's own: Note [Opaque ops]
  kReader,       // a composite that reads bytes by pointer: Note [Pointer readers]
  kListLoop,     // on the CPU made of ops that are seen one by one: Note [Ops on lists]
};

// Whether two runs of an op on a GPU may differ in their bits, because the order of additions
// depends on the scheduling of threads.
enum class VariesOnGpu : std::uint8_t {
  kNo,
  kUnlessDeterministic,       // unless torch.use_deterministic_algorithms is on
  kUnlessDeterministicCudnn,  // unless that or torch.backends.cudnn.deterministic is on
};

// Whether an op has been unregistered. A copy starts as not set: the flag belongs to the table's
// traits only.
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
  bool overridden = false;       // an op of ATen's with a kernel of other code
  bool own_kernel = false;       // an op of ATen's with its own kernel
  bool repeatable = false;       // may be replayed
  bool uninitialized = false;    // its results hold bytes that nothing has written
  bool random = false;           // draws from a generator
  bool captures = false;         // may keep its tensors after its return: they escape
  bool collective = false;       // of c10d: Note [In collective]
  bool waits = false;            // waits for functional collectives on its argument
  bool compiled = false;         // a call of a compiled graph: Note [Compiled graphs]
  bool foreign = false;          // its kernel may touch tensors that are not among its arguments
  bool metadata_only = false;    // reads shapes of its arguments, not bytes
  bool overwrites_self = false;  // replaces all of its first argument without reading it
  bool verifiable = true;        // false: some result bytes are uninitialized
  Pointers pointers = Pointers::kAny;  // of a kReader
  bool matrix_product = false;  // compute-bound: a first cost estimate on a GPU counts its flops
  bool overwritable = false;    // Note [Overwritable operands]
  bool in_parts = false;        // runs for parts of its lists, one after another
  bool gated = false;           // draws with the gate held: Note [The generator's gate]
  // Its kernel on the CPU writes elements in the order of its threads: Note [Order of threads].
  bool thread_order = false;
  VariesOnGpu varies_on_gpu = VariesOnGpu::kNo;
  std::int8_t varies_if = -1;  // index of the argument that must be true for that; -1: none
  std::uint64_t writes = 0;    // bit i: argument i is written, by schema or by the tables
  std::uint64_t outs = 0;      // bit i: argument i is an `out`, all of which is replaced
  // Bit i: argument i is written in passing and its content does not reach the results. A replay
  // gets a scratch tensor instead (BatchNorm's running statistics), if argument `condition_arg` is
  // true or `condition_arg` is -1.
  std::uint64_t left_out = 0;
  std::int8_t condition_arg = -1;
  // Index of the generator argument of an op that draws; -1 if there is none. If only another,
  // otherwise equal overload has one: `with_generator` is that overload, and this its argument.
  std::int8_t generator_slot = -1;
  std::optional<c10::OperatorHandle> with_generator;
  std::string name;  // "aten::add.Tensor"
  Unregistered unregistered;
};

// The ops that the tables of traits name.
std::vector<NamedOp> known_names();

// Traits of an op of this PyTorch, for calls of this reach. `allowed`: the user guarantees that the
// op can be repeated.
[[nodiscard]] OpTraits traits_of(const c10::OperatorHandle& op, bool allowed, Reach reach);
// Whether another run of an op on a GPU may give other bits. Its arguments are on the stack, from
// `base` on.
[[nodiscard]] bool may_vary(const OpTraits& traits, const torch::jit::Stack& stack,
                            std::size_t base);
// Whether the kernel on the CPU must run with one thread, so that each run gives the same bits.
[[nodiscard]] bool needs_one_thread(const OpTraits& traits, const torch::jit::Stack& stack,
                                    std::size_t base);
// Whether an op of this name is ATen's.
[[nodiscard]] bool is_atens(std::string_view name);

}  // namespace recoup::detail
