// One op of the program on its way through recoup.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "csrc/base/flat_map.h"
#include "csrc/torch/components.h"
#include "csrc/torch/generators.h"
#include "csrc/torch/kernel_frame.h"
#include "csrc/torch/payload.h"
#include "csrc/torch/session.h"
#include "csrc/torch/snapshot.h"
#include "csrc/torch/traits.h"

namespace recoup::detail {

// The number that Python's argument parser wrapped in a tensor of the CPU; none: it is no such one.
std::optional<c10::Scalar> wrapped_number(const at::Tensor& tensor);
inline std::optional<c10::Scalar> number_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? wrapped_number(tensor) : std::nullopt;
}

inline c10::StorageImpl& impl_of(const Operand& operand) {
  return *static_cast<c10::StorageImpl*>(operand.owner);
}

// run() is the story: find the storages, bring their bytes back and pin them, run the kernel, give
// what it made a record, unpin.
class OpCall {
 public:
  // `others`: sessions of other devices that the op concerns too; each has an OpCall of its own,
  // within this one's kernel.
  OpCall(Session& session, const c10::OperatorHandle& op, const OpTraits& traits,
         c10::DispatchKeySet keys, torch::jit::Stack& stack, std::span<Session* const> others = {})
      : session_(session),
        op_(op),
        traits_(traits),
        keys_(keys),
        stack_(stack),
        argument_count_(op.schema().arguments().size()),
        base_(stack.size() - argument_count_),
        others_(others) {}
  void run();
  // For a guest, whose kernel runs after this: its arguments are brought back and held for it, and
  // what it writes is a new version, a leaf.
  void announce(KernelFrame& frame);

 private:
  enum class Results : std::uint8_t { kOnStack, kNone };
  void find_operands();
  void add_operand(const at::Tensor& tensor, std::size_t argument);
  [[nodiscard]] c10::StorageImpl* bypassed_storage(const at::Tensor& tensor) const;
  void add_components(const at::Tensor& tensor, std::size_t argument);
  void add_storage_operand(const c10::Storage& storage);
  void prepare();
  void begin(const Session::Lock& lock);
  void prepare_kernel(const Session::Lock& lock);
  void run_until_it_fits();
  void run_kernel();
  void begin_draw(std::optional<Draw>& draw);
  void run_below();
  void order_on_gpu(Gpu& gpu);
  void begin_on_gpu(Gpu& gpu, const Session::Lock& lock);
  void cancel_on_gpu(const Session::Lock& lock);
  // The cost for now, and then who it is of. No token: it will not be known better.
  std::optional<cuda::OpClock::Token> estimate_cost(Gpu& gpu, bool made_room);
  void name_timed_op(Gpu& gpu, cuda::OpClock::Token token, std::span<const StorageId> fresh,
                     const Session::Lock& lock);
  void kernel_ended(const Session::Lock& lock);
  // The kernel ran out of memory only because free memory was in pieces: puts everything back as it
  // was, in order, so that the op can be tried again.
  void prepare_retry(Retry& retry);
  [[nodiscard]] bool may_run_twice() const;
  void finish(Results results);
  // For the frames of the kernels around it: what it reads, while that is pinned for the op; and
  // what it made, which may have to be brought back.
  void hold_arguments(const Session::Lock& lock);
  void hold_results();
  void keep_descriptions();
  template <class Function>
  void for_each_known(Arguments values, const Session::Lock& lock, Function&& function);
  void fail() noexcept;
  Operand& new_operand(c10::StorageImpl* impl);
  [[nodiscard]] bool is_fresh(BlockId block);
  void charge_made_outside(const Session::Lock& lock);
  void save_left_out(const Session::Lock& lock);
  void restore_left_out() noexcept;
  void drop_left_out(const Session::Lock& lock) noexcept;
  void collect_fresh(const Session::Lock& lock);
  void add_fresh(const at::Tensor& tensor, std::uint16_t result, const Session::Lock& lock);
  void add_fresh_storage(c10::StorageImpl& storage, std::uint16_t result,
                         const Session::Lock& lock);
  [[nodiscard]] std::unique_ptr<Payload> make_payload(const Session::Lock& lock);
  void describe_coverage(Payload& payload) const;
  void describe_arguments(Payload& payload);
  void describe_list(const c10::IValue& list, std::size_t argument, Payload& payload);
  void describe_tensor(const at::Tensor& tensor, std::size_t argument, std::int64_t element,
                       Payload& payload);
  // A few bytes on the CPU that an op on a GPU reads: kept with its record.
  [[nodiscard]] bool is_constant(const at::Tensor& tensor, std::size_t argument) const;
  void set_source(TensorArgument& shape, const at::Tensor& tensor);
  void arm_operands();
  void note_written(const Session::Lock& lock);
  [[nodiscard]] Operand* operand_of(const c10::StorageImpl* impl);
  [[nodiscard]] bool writes(std::size_t argument) const {
    return argument < 64 && ((traits_.writes >> argument) & 1U) != 0;
  }
  [[nodiscard]] bool leaves_out(std::size_t argument) const {
    return leaves_out_ && argument < 64 && ((traits_.left_out >> argument) & 1U) != 0;
  }

  Session& session_;
  const c10::OperatorHandle& op_;
  const OpTraits& traits_;
  c10::DispatchKeySet keys_;
  torch::jit::Stack& stack_;
  std::size_t argument_count_;
  std::size_t base_;  // of the arguments on the stack

  std::span<Session* const> others_;

  bool foreign_ = false;     // an argument is not plain, or of another device
  bool leaves_out_ = false;  // traits_.left_out applies to this call
  bool described_ = false;   // a result is not plain
  bool framed_ = false;      // it runs in a frame of a kernel of this thread
  bool repeatable_ = false;
  bool ended_ = false;    // it is on record
  bool running_ = false;  // counted among the session's kernels
  std::uint64_t serial_ = 0;
  Nanoseconds cost_{0};
  Nanoseconds room_before_{0};
  std::optional<Gpu::Begun> begun_;  // on a GPU
  std::uint64_t kind_ = 0;           // the same
  // What the op writes in passing, from before: a kernel that runs out of memory may have done so.
  std::vector<Snapshot> left_out_before_;
  GeneratorState random_;
  // Their owners are StorageImpls, their indices those in the payload: among inputs, or among what
  // is written.
  c10::SmallVector<Operand, 4> operands_;
  // A kernel may give a tensor another storage (set_), and the one from before dies in it: its
  // record of PyTorch's stays until we have looked at it.
  c10::SmallVector<c10::weak_intrusive_ptr<c10::StorageImpl>, 2> replaceable_;
  // Of composite tensors, which may be given other ones by the kernel.
  c10::SmallVector<c10::Storage, 0> components_;
  // Where each is, when they are many; the same of fresh_, by block.
  std::optional<FlatMap<Id<struct OperandTag>>> operand_places_;
  std::optional<FlatMap<BlockId>> fresh_blocks_;
  // Results, and arguments that were given new bytes, that live outside of the pool.
  c10::SmallVector<c10::StorageImpl*, 0> made_outside_;
  // The arguments as they were: kernels consume the stack.
  c10::SmallVector<c10::IValue, 6> arguments_;
  c10::SmallVector<FreshStorage, 2> fresh_;  // their handles are StorageRecords
  c10::SmallVector<std::uint16_t, 2> fresh_results_;
};

}  // namespace recoup::detail
