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
#include "recoup/decision.h"
#include "recoup/errors.h"
#include "recoup/options.h"
#include "recoup/paged.h"
#include "recoup/policy.h"
#include "recoup/share.h"
#include "recoup/stats.h"

namespace recoup {

namespace detail {
class BudgetScope;
class Session;
class SharedBudget;
}  // namespace detail

// A scope in which the tensor memory of one device stays within a budget. It lasts from `enter` to
// `leave`, which the same thread calls; a device has at most one scope at a time. An op that does
// not fit throws c10::OutOfMemoryError, whose text is the report. A function that must be called
// before `enter` throws std::logic_error if it is called later.
class RECOUP_API Budget {
 public:
  // `device`: "cpu" or "cuda:0". Throws std::invalid_argument for a budget <= 0, an unknown policy,
  // or a device that does not exist. Throws std::runtime_error, with advice, where budgets are
  // impossible: see docs/cuda.md.
  explicit Budget(const Options& options, const std::string& device = "cpu");
  // Abandons the scope if it is still entered, without writing a trace.
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Starts the scope on this thread. Throws std::logic_error if the device already has a scope, or
  // if this budget was entered before.
  void enter();
  // Makes every live tensor resident and ends the scope. Throws OutOfBudget if that does not fit.
  // The scope is then suspended: no data is lost, and access to an evicted tensor throws until
  // set_budget() with a larger budget and another leave() have restored it.
  void leave();
  // Ends the scope without restoring tensors: access to an evicted tensor throws. Throws
  // std::system_error if the trace cannot be written.
  void abandon();
  // Changes the budget. A smaller one evicts and moves values until they fit. Throws OutOfBudget if
  // they do not fit, and then keeps the old budget. Throws std::invalid_argument for a smaller one
  // on a GPU, std::runtime_error for one beyond the device's memory, and std::logic_error once the
  // scope has ended.
  void set_budget(Bytes budget);
  // Shares a budget of `total` bytes with all processes that name the same file, which should be in
  // memory, such as /dev/shm. The budget of this scope, its part, is small at first. When an op
  // does not fit, the part grows by what the others have not taken. Before an op fails, it waits
  // for give() of the others, which their programs call from a thread of their own. On the CPU
  // only, and before `enter`. Throws std::invalid_argument if the others share another total,
  // std::system_error if the file cannot be used, and std::runtime_error if nothing is left.
  void share(const std::string& file, Bytes total);
  // Reduces the part to `budget`, and leaves the difference to the other processes. While an op
  // runs for longer than 0.1 seconds, by free bytes only. False: that many bytes cannot be freed
  // now. Throws std::invalid_argument for a budget without room, and std::logic_error if the budget
  // is not shared, as the functions below.
  [[nodiscard]] bool give(Bytes budget);
  // Tells the other processes how large a part this scope could use, and how much memory worker
  // processes of this one take, which is charged to the shared budget.
  void publish_share(Bytes demand, Bytes workers);
  // The part grows to at most `limit` from now on, unless an op would fail.
  void limit_share(Bytes limit);
  // The processes that share the budget.
  [[nodiscard]] std::vector<SharePart> share_parts() const;
  // What this process has asked of the others.
  [[nodiscard]] ShareCounters share_counters() const;
  // Use of paged memory; zeros if there was none.
  [[nodiscard]] PagedUse paged_use() const;
  // The peak of the charged bytes since the last call.
  [[nodiscard]] Bytes take_recent_peak();
  // Starts a new peak of the charged bytes at what is charged now.
  void reset_peak();
  // Counts the pages of the pool that take memory, for committed(). Call it before `enter`;
  // otherwise std::logic_error is thrown.
  void count_pages();
  // The memory that the pool and the charges outside of it take now: an upper bound, as pages count
  // from their allocation on. At most the budget. Throws std::logic_error once the scope has ended.
  [[nodiscard]] Bytes committed() const;

  // Records a trace of the program to the file `path` (see recoup/trace.h), which is complete when
  // the scope is left. Call it before `enter`. Throws std::system_error if the file cannot be
  // written, here or in `leave`, which then ends the scope nevertheless.
  void record(const std::string& path);
  // Declares that no code has the address of a tensor from before the scope, as NumPy or a raw
  // pointer would. A spill tier may then take its bytes and free its memory. Tensors that are not
  // offered stay where they are. On a GPU, so does an offered tensor that shares a segment of
  // PyTorch's allocator with one that is not. Call it after `enter`; otherwise std::logic_error is
  // thrown.
  void offer(const at::Tensor& tensor);
  // Call it after the last offer. The same is thrown.
  void end_offers();
  // Marks the end of a training step for traces and for plans of policy "planned". Python
  // optimizers are marked automatically, C++ optimizers are not.
  void mark_step(const std::string& name);
  // Records the decisions of the engine. Call it before `enter`, instead of `record`.
  void log_decisions();
  // The recorded decisions; empty unless `log_decisions` was called.
  [[nodiscard]] std::vector<Decision> decisions() const;
  // Records the attribution of memory and time, which makes each op slower. Call it before `enter`.
  void attribute(const AttributionOptions& options);
  // Names the storage of a tensor if the budget manages it. `name` is an index into a table of the
  // caller, see NameId.
  void set_name(const at::Tensor& tensor, std::uint32_t name);
  // Subjects what ops of the module make from now on to the rule. `module`: a number that is given
  // to enter_module. Has no effect unless `attribute` was called.
  void add_rule(std::uint32_t module, StorageRule rule);
  // The attribution so far, or of the whole scope once it has ended; empty unless `attribute` was
  // called.
  [[nodiscard]] Attribution attribution() const;

  // Whether the scope is in force and not suspended.
  [[nodiscard]] bool entered() const;
  // Whether `leave` has failed because live tensors did not fit.
  [[nodiscard]] bool suspended() const;
  // Statistics so far, or of the whole scope once it has ended.
  [[nodiscard]] Stats stats() const;
  // Storages that cannot be evicted, largest first.
  [[nodiscard]] std::vector<PinnedRow> pinned() const;
  // Waits for copies by name of the op. After the scope they include its exit.
  [[nodiscard]] std::vector<CopyWaitRow> copy_waits() const;
  // Verifies every invariant of the scope; throws InternalError. Slow, for tests.
  void check() const;

 private:
  void end_as_it_is(bool keeps_trace);
  void keep_results();
  [[nodiscard]] detail::SharedBudget& shared() const;

  std::unique_ptr<detail::BudgetScope> scope_;
  Stats last_stats_;
  std::vector<PinnedRow> last_pinned_;
  std::vector<CopyWaitRow> last_copy_waits_;
  std::vector<Decision> last_decisions_;
  Attribution last_attribution_;
  ShareCounters last_share_;
  PagedUse last_paged_;
};

// Attributes what this thread does from now on to a module's forward pass, or to a step of an
// optimizer: see Budget::attribute. Modules nest. Returns the number of modules that the thread was
// in before; pass it to leave_module when the module ends, also after an exception.
RECOUP_API std::size_t enter_module(std::uint32_t module, bool optimizer = false);
// Ends the module that the last enter_module began; `depth` is the number that it returned.
RECOUP_API void leave_module(std::size_t depth);

// Functions on one tensor have no effect on tensors that no entered budget manages.
//
// Evicts a tensor if possible. Returns whether it is evicted now.
RECOUP_API bool evict(const at::Tensor& tensor);
// Whether the tensor has its bytes in memory; true for tensors that no budget manages.
RECOUP_API bool is_resident(const at::Tensor& tensor);
// Restores the tensor's bytes. Throws c10::OutOfMemoryError if they do not fit, and c10::Error if
// they are evicted and this thread does not carry the scope; escape() and Pin do the same.
RECOUP_API void materialize(const at::Tensor& tensor);
// Subjects the tensor's storage to the rule until it dies; restores it before if it is evicted. Has
// no effect outside of a scope.
RECOUP_API void set_rule(const at::Tensor& tensor, StorageRule rule);
// Whether code outside of recoup may already have the address of a tensor (kKnown) or not yet
// (kNew). In the latter case its bytes may be moved out of the pool first.
enum class Address : std::uint8_t { kKnown, kNew };
// Declares that code outside of recoup has the tensor's address from now on: the tensor stays
// resident and in place until it dies.
// Returns whether the tensor's storage had not escaped before.
RECOUP_API bool escape(const at::Tensor& tensor, Address address = Address::kKnown);
// Withdraws all offers (Budget::offer): nothing more of what was offered goes to a spill tier. Call
// it before a thread that recoup does not see may use these tensors.
RECOUP_API void withdraw_offers();
// Charges a tensor that was made outside of ops now, instead of when an op first uses it.
RECOUP_API void charge(const at::Tensor& tensor);
// Whether any scope is entered.
RECOUP_API bool active();
// Declares that the op "ns::name" is deterministic: replays give the same bits.
RECOUP_API void allow_replay(const std::string& name);
// Physical memory of the machine; 1 TiB if the system does not report it.
RECOUP_API Bytes physical_memory();
// Memory of a GPU in bytes.
struct GpuMemory {
  Bytes free;      // as reported by the driver
  Bytes total;     // as reported by the driver
  Bytes outside;   // obtained from the driver by this process, without scopes that are entered
  Bytes reserved;  // obtained from the driver by this process
  Bytes used;      // the part of `reserved` that tensors of this process use
};
// Memory of the GPU with this index. Initializes CUDA support first, and throws what install_cuda()
// throws. Throws std::runtime_error if CUDA fails, and std::invalid_argument for a device that does
// not exist.
RECOUP_API GpuMemory gpu_memory(int device);
// Whether this build has CUDA support.
RECOUP_API bool with_cuda();
// Enables budgets on CUDA devices. While one is in force, PyTorch's CUDA allocator is wrapped.
// Makes no call to the driver, and CUDA may already be in use. Has no effect the second time.
// Throws std::runtime_error if the loaded PyTorch has no CUDA, and std::logic_error if this build
// has none.
RECOUP_API void install_cuda();
// Makes this thread carry the scope (true), or not (false): its ops are recorded and may restore
// evicted tensors. Returns the previous state. The thread that enters a scope carries it from the
// start.
RECOUP_API bool carry(bool on);
// Whether this thread carries the scope.
RECOUP_API bool carries();

// Keeps a tensor's storage resident and in place, through writes, until it is released or the
// storage dies. It does not keep the storage alive.
class RECOUP_API Pin {
 public:
  // Restores the tensor if it is evicted, and pins its storage.
  explicit Pin(const at::Tensor& tensor);
  // Releases the pin.
  ~Pin();
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  // Releases the pin now. Has no effect the second time.
  void release();
  // Leaves the storage pinned for as long as it lives.
  void keep() { session_ = nullptr; }

 private:
  const void* session_ = nullptr;  // null: nothing is pinned
  StorageId storage_;
  std::uint64_t birth_ = 0;
};

}  // namespace recoup
