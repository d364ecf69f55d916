// What recoup has to know of an op beyond its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "csrc/torch/pointer_readers.h"
#include "recoup/torch.h"

namespace recoup::detail {

enum class OpKind : std::uint8_t {
  kTransparent,  // not an op on tensors' bytes, or made of ops that are seen one by one: passed on
  kView,         // reads and writes no bytes and makes no storage: run and forgotten
  kRecorded,     // runs under the engine's eyes
  kLazyClone,    // copy-on-write: run as a copy
  kOtherStream,  // record_stream: says something of an address, not of a value
  kGuest,        // a kernel that is not ATen's own: Note [Guests]
  kReader,       // a composite that looks at bytes by pointer: Note [Pointer readers]
};

// Whether two runs of an op on a GPU may differ in their bits, because sums are added up in the
// order in which threads get there.
enum class VariesOnGpu : std::uint8_t {
  kNo,
  kUnlessDeterministic,       // torch.use_deterministic_algorithms
  kUnlessDeterministicCudnn,  // that, or torch.backends.cudnn.deterministic
};

struct OpTraits {
  OpKind kind = OpKind::kRecorded;
  bool overridden = false;             // an op of ATen's with a kernel of somebody else's
  bool repeatable = false;             // may be replayed
  bool random = false;                 // draws from a generator
  bool captures = false;               // may keep its tensors beyond its return: they escape
  bool metadata_only = false;          // reads shapes of its arguments, not bytes
  bool overwrites_self = false;        // replaces all of its first argument and reads nothing of it
  bool verifiable = true;              // false: some result bytes are uninitialized
  Pointers pointers = Pointers::kAny;  // of a reader
  bool matrix_product = false;  // costs more than its bytes: on a GPU a first guess takes that in
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
};

// What the tables behind traits name.
std::vector<NamedOp> known_names();

// Looks traits up by op; computes them once. Thread safe.
class TraitsTable {
 public:
  const OpTraits& of(const c10::OperatorHandle& op) {
    // Perf only: traits never move once made, so each thread may remember where they are.
    thread_local std::array<std::pair<const c10::FunctionSchema*, const OpTraits*>, 256> recent{};
    const c10::FunctionSchema* const schema = &op.schema();
    auto& slot = recent[(reinterpret_cast<std::uintptr_t>(schema) >> 6) % recent.size()];
    if (slot.first != schema) {
      slot = {schema, &look_up(op)};
    }
    return *slot.second;
  }
  // The user vouches that ops of this name ("ns::op", any overload) can be repeated.
  void allow_replay(const std::string& name);
  // Kernels may have been registered or taken away since ops were looked up. While no session is in
  // force.
  void look_for_overrides();
  static TraitsTable& instance();

 private:
  const OpTraits& look_up(const c10::OperatorHandle& op);
  [[nodiscard]] OpTraits traits_of(const c10::OperatorHandle& op) const;

  std::mutex mutex_;
  std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OpTraits>> table_;
  std::unordered_set<std::string> allowed_;
};

}  // namespace recoup::detail
