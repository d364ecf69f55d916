// An op on lists that runs in parts, one after the other.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/engine/program/in_parts.h"
#include "csrc/torch/calls/call.h"
#include "csrc/torch/ops/payload.h"
#include "csrc/torch/session/session.h"
#include "recoup/types.h"

namespace recoup::detail {

// Note [Ops on lists]. Each part is an op of its own; empty lists stay empty. On the CPU a part has
// one tensor of each list. On a GPU a part has up to kPartBytes and kPartTensors, to limit the
// number of kernel launches. The cuts depend on nothing else, so a trace has the parts of every
// run.
class PartedCall {
 public:
  // The arguments must outlive this object.
  PartedCall(Session& session, const Call& call)
      : session_(session), call_(call), arguments_(call.on_stack()) {}
  // False if the op was not run and nothing has changed; then it must be run as a whole. If a part
  // fails for another reason than the budget, the lists are left as by a failing kernel: processed
  // up to that part.
  [[nodiscard]] bool run();

 private:
  static constexpr Bytes kPartBytes{64 << 20};
  static constexpr std::size_t kPartTensors = 64;
  // The tensors of one part, as indices into the lists.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Length of the lists; zero if they cannot be cut.
  [[nodiscard]] std::size_t length() const;
  [[nodiscard]] bool is_even(const c10::IValue& list) const;
  [[nodiscard]] bool is_scalar_of_host(const at::Tensor& tensor, std::size_t argument) const;
  // Bytes of all lists' tensors at that index.
  [[nodiscard]] Bytes bytes_at(std::size_t index) const;
  void cut(std::size_t length);
  [[nodiscard]] Part describe(Range part, const EngineLock& lock) const;
  [[nodiscard]] bool begin();
  void run_part(Range part);

  Session& session_;
  const Call& call_;
  const Arguments arguments_;
  std::vector<Range> parts_;
};

}  // namespace recoup::detail
