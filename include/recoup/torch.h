// recoup for LibTorch programs.
//
//   recoup::Budget budget({.budget = 4_GiB, .policy = "lru"});
//   ... train ...
//   budget.leave();
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "recoup/api.h"
#include "recoup/attribution.h"
#include "recoup/errors.h"
#include "recoup/options.h"
#include "recoup/policy.h"
#include "recoup/simulate.h"
#include "recoup/stats.h"

namespace recoup {

namespace detail {
class BudgetScope;
class Session;
}  // namespace detail

// A scope in which tensor memory of one device stays within a budget. Counts from `enter` to
// `leave`, on one thread; at most one is entered on a device. Ops that cannot fit throw
// c10::OutOfMemoryError with the report as its text.
class RECOUP_API Budget {
 public:
  // `device`: "cpu" or "cuda:0". Throws std::invalid_argument for a budget <= 0, an unknown policy
  // or a device that does not exist; std::runtime_error, which says what to do, where there can be
  // no budget: see docs/cuda.md.
  explicit Budget(const Options& options, const std::string& device = "cpu");
  // NonRecomputables as `abandon` when the scope is still entered, without a trace.
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Throws std::logic_error when a budget is in force already.
  void enter();
  // Makes every live tensor resident and ends the scope. Throws OutOfBudget when that does not fit;
  // then the scope is suspended and nothing is lost: what is evicted throws when it is touched,
  // until grow() and a second leave() bring it back.
  void leave();
  // Ends the scope as it is. Tensors that are evicted throw when they are touched. Throws
  // std::system_error when the trace cannot be written.
  void abandon();
  void grow(Bytes budget);
  // Evicts and moves until all fits into less. Throws OutOfBudget when it does not, and the budget
  // stays what it was; std::invalid_argument on a GPU.
  void shrink(Bytes budget);

  // To be called before `enter`: records what the program does to `path` (see recoup/trace.h). The
  // file appears when the scope is left. Throws std::system_error when it cannot be written, here
  // or from `leave`, which then ends the scope all the same.
  void record(const std::string& path);
  // After `enter`, of a tensor that was made before: nobody has taken the address of its bytes, as
  // NumPy or a raw pointer do. So with a spill tier they may go there, and their own memory is
  // given back. Tensors that are not offered stay where they are, and on a GPU all do. Throws
  // std::logic_error when the scope is not entered.
  void offer(const at::Tensor& tensor);
  // A training step ends here: a trace says so, and the policy "planned" plans for steps. A C++
  // optimizer does not say it by itself, as a Python one does.
  void mark_step(const std::string& name);
  // Before `enter`, instead of `record`: keeps the decisions of the engine.
  void log_decisions();
  [[nodiscard]] std::vector<Decision> decisions() const;
  // Before `enter`: keeps on whose behalf memory is held and time is spent. Each op takes longer.
  void attribute(const AttributionOptions& options);
  // What a tensor's storage is called, if it is one that the budget knows: a number of the
  // caller's.
  void set_name(const at::Tensor& tensor, std::uint32_t name);
  // Of a scope that is over, all of it; empty unless `attribute` was called.
  [[nodiscard]] Attribution attribution() const;

  [[nodiscard]] bool entered() const;
  // Whether `leave` has failed for lack of room.
  [[nodiscard]] bool suspended() const;
  [[nodiscard]] Stats stats() const;
  [[nodiscard]] std::vector<PinnedRow> pinned() const;
  // By the ops' names. After the scope: all of it, its end too.
  [[nodiscard]] std::vector<CopyWaitRow> copy_waits() const;
  // Recounts every invariant; throws InternalError.
  void check() const;

 private:
  void end_as_it_is(bool keeps_trace);

  std::unique_ptr<detail::BudgetScope> scope_;
  Stats last_stats_;
  std::vector<PinnedRow> last_pinned_;
  std::vector<CopyWaitRow> last_copy_waits_;
  std::vector<Decision> last_decisions_;
  Attribution last_attribution_;
};

// This thread runs the forward pass of a module from now on, or a step of an optimizer: what is
// made and done is said to be for it, see Budget::attribute. Returns how many it was in before; to
// be given to leave_module when it ends, however it ends.
RECOUP_API std::size_t enter_module(std::uint32_t module, bool optimizer = false);
RECOUP_API void leave_module(std::size_t depth);

// All of these do nothing for tensors that no entered budget manages.
RECOUP_API bool evict(const at::Tensor& tensor);  // whether it is evicted now
RECOUP_API bool is_resident(const at::Tensor& tensor);
RECOUP_API void materialize(const at::Tensor& tensor);
// Whether code outside of recoup may have the address of a tensor already. Where none has, its
// bytes may be moved once more.
enum class Address : std::uint8_t { kKnown, kNew };
// The tensor's address is known outside from now on: resident and in place until it dies.
RECOUP_API void escape(const at::Tensor& tensor, Address address = Address::kKnown);
// Of what was offered to a spill tier nothing more goes there: a thread that nobody sees may use
// it from now on. See Budget::offer.
RECOUP_API void withdraw_offers();
// A tensor that was made outside of any op is charged now, not when an op sees it.
RECOUP_API void charge(const at::Tensor& tensor);
// Whether its storage grows in memory that is not the pool's.
RECOUP_API bool grows_outside(const at::Tensor& tensor);
// Whether its content is an op's, in the pool or evicted from there.
RECOUP_API bool in_pool(const at::Tensor& tensor);
// Whether it is a private mapping of a file that no op has met. Such a mapping takes memory where
// tensors show it, and is charged there.
RECOUP_API bool is_unused_mapping(const at::Tensor& tensor);
// For the Python package: shows how PyTorch makes a slice of a storage.
RECOUP_API void learn_slices(const at::Tensor& slice, const at::Tensor& whole);
// A c10d::Work has been waited for: no thread uses the tensors of its collective any more.
RECOUP_API void waited(const c10::intrusive_ptr_target* work);
RECOUP_API bool active();
// The user vouches that the op "ns::name" gives the same bits when it is run again.
RECOUP_API void allow_replay(const std::string& name);
// 1 TiB where the system does not say.
RECOUP_API Bytes physical_memory();
struct GpuMemory {
  // As the driver has it.
  Bytes free;
  Bytes total;
  // Of this process's tensors.
  Bytes outside;   // given by the driver, without that of a budget at work
  Bytes reserved;  // all that was given
  Bytes used;
};
// Works from the start, as install_cuda() does. Throws what that throws, std::runtime_error when
// CUDA fails, and std::invalid_argument for a device that does not exist.
RECOUP_API GpuMemory gpu_memory(int device);
// Whether this build knows CUDA.
RECOUP_API bool with_cuda();
// CUDA devices can have budgets from now on; while one is in force PyTorch's CUDA allocator has a
// decorator. Asks nothing of the driver, and CUDA may be in use. Throws std::runtime_error when the
// PyTorch that is loaded has no CUDA, and std::logic_error when this build has none. Does nothing
// the second time.
RECOUP_API void install_cuda();
// Makes this thread one of the scope's, or no longer: its ops are seen, and may bring back what is
// evicted. Returns whether it was one. The thread that enters a scope is one by itself.
RECOUP_API bool carry(bool on);
// The lock of the interpreter that the program is written in, for bindings.
struct InterpreterLock {
  bool (*running)();   // whether there is an interpreter, that is not about to end
  void* (*release)();  // null when this thread does not hold it
  void (*take_back)(void* released);
  int (*hold)();  // whether this thread holds it already or not
  void (*let_go)(int held);
  // How many references the interpreter counts to an object of its own that is alive. Called
  // without its lock: the number may be old.
  std::int64_t (*references)(const void* object);
};
// `lock` must live as long as the process.
RECOUP_API void set_interpreter_lock(const InterpreterLock& lock);
// A name that recoup knows of an op, and positions of arguments in its schema; to be held against
// the PyTorch that is installed.
struct NamedOp {
  std::string table;
  std::string name;  // "aten::add": any overload; or "aten::add.Tensor"
  std::vector<int> arguments;
};
RECOUP_API std::vector<NamedOp> named_ops();
// Ops of ATen's that have somebody else's kernel on the CPU or a GPU: "aten::add.Tensor".
RECOUP_API std::vector<std::string> overridden_ops();
// How ops come to recoup: Note [The hook] in csrc/torch/compat/hook.h. The environment's
// RECOUP_HOOK says which, fake or backend_select; else it is the first that can be had. To be
// called before the first budget, which calls it otherwise. std::runtime_error where there is none.
RECOUP_API void install_hook();
// Its name, as in RECOUP_HOOK.
RECOUP_API const char* hook_name();
// Whether ops of this thread come to nobody's notice, also in a scope. Returns what it was.
RECOUP_API bool set_unseen(bool on);
// Sends this thread's ops through recoup's dispatcher entry without a budget: an empty boxed
// fallback, the yardstick of bench/watching.py.
RECOUP_API void pass_through(bool on);
// For tests of what recoup believes of PyTorch: which of an op's calls may be run again. Throws
// std::invalid_argument for an op that there is not.
struct ReplayTraits {
  bool seen;        // passes recoup as one op, not as the ops that it is made of
  bool repeatable;  // may be run again, where nothing of the call speaks against it
  bool verifiable;  // all bytes of its results are defined
  bool random;
  std::string with_generator;  // the overload that draws again in its place; or nothing
};
RECOUP_API ReplayTraits replay_traits(const std::string& name, const std::string& overload);
// The same: which combination of settings of process and thread is in force; equal ones have equal
// numbers.
RECOUP_API std::uint64_t settings_number();
// Before and behind the start of a profiler that looks at the addresses of arguments: on. Then it
// may, of evicted tensors too, on this thread and those that autograd runs for it.
RECOUP_API void let_observers_look(bool on);

// Keeps a tensor's storage resident and in place, through writes, until it is released or the
// storage dies; it does not keep the storage alive.
class RECOUP_API Pin {
 public:
  explicit Pin(const at::Tensor& tensor);
  ~Pin();
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  void release();
  // It is pinned for as long as the storage lives.
  void keep() { session_ = nullptr; }

 private:
  const void* session_ = nullptr;  // none: nothing is pinned
  StorageId storage_;
  std::uint64_t birth_ = 0;
};

// Charges the CPU's budget, if one is in force, for bytes that are about to be made outside of its
// pool, and makes room for them. Once they are made it is released, and their tensor charged.
class RECOUP_API Reservation {
 public:
  explicit Reservation(Bytes size);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  void release();

 private:
  const void* session_ = nullptr;  // none: nothing is charged
  StorageId storage_;
};

// Turns an out-of-budget report into the exception of the program's language; must throw.
using OutOfBudgetThrower = void (*)(const OutOfBudgetReport& report);
RECOUP_API void set_out_of_budget_thrower(OutOfBudgetThrower thrower);

}  // namespace recoup
