// Functions for bindings of recoup to a language, and for tests; the Python package is one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "recoup/torch.h"

namespace recoup {

// Sets the line of the program that took the tensor's address, for reports.
RECOUP_API void set_address_line(const at::Tensor& tensor, LineId line);

// Whether the tensor's storage, when resized, allocates memory outside the pool.
RECOUP_API bool grows_outside(const at::Tensor& tensor);
// Whether the tensor's bytes are in the pool, or were there before they were evicted.
RECOUP_API bool in_pool(const at::Tensor& tensor);
// Whether the tensor is a private mapping of a file that no op has used. Such a mapping takes
// memory only for the tensors that are made from it, and is charged with these.
RECOUP_API bool is_unused_mapping(const at::Tensor& tensor);

// Teaches recoup how PyTorch makes a slice of a storage, from an example.
RECOUP_API void learn_slices(const at::Tensor& slice, const at::Tensor& whole);
// Declares that a c10d::Work has been waited for: no thread uses the tensors of its collective any
// more.
RECOUP_API void waited(const c10::intrusive_ptr_target* work);

// Functions of the interpreter of the program's language and of its lock, supplied by bindings.
struct InterpreterLock {
  bool (*running)();   // whether the interpreter runs and is not shutting down
  void* (*release)();  // releases the lock; returns null if this thread does not hold it
  void (*take_back)(void* released);  // takes the lock again, with the result of `release`
  int (*hold)();  // takes the lock, even if this thread holds it already; returns a state
  void (*let_go)(int held);  // ends a `hold`, with its result
  // The reference count of a live object of the interpreter. Called without the lock, so the count
  // may be out of date.
  std::int64_t (*references)(const void* object);
  // Tells the program that a thread outside of the scope has accessed an evicted tensor, which
  // raises an error there. `thread`: the system's number of that thread. Called on another thread,
  // which does not have the lock.
  void (*outside_access)(int thread);
};
// Installs the functions. `lock` must live as long as the process.
RECOUP_API void set_interpreter_lock(const InterpreterLock& lock);

// An op that recoup knows by name, and positions of arguments in its schema. Used to compare
// recoup's tables with the installed PyTorch.
struct NamedOp {
  std::string table;           // name of recoup's table
  std::string name;            // "aten::add" for any overload, or "aten::add.Tensor"
  std::vector<int> arguments;  // positions of arguments in the schema
};
// All entries of recoup's tables of ops.
RECOUP_API std::vector<NamedOp> named_ops();
// ATen's ops whose kernel on the CPU or a GPU has been replaced by other code: "aten::add.Tensor".
RECOUP_API std::vector<std::string> overridden_ops();

// Installs the hook through which recoup receives ops: Note [The hook] in csrc/torch/compat/hook.h.
// The environment variable RECOUP_HOOK selects "fake" or "backend_select"; by default the first
// available one is used. The first budget calls it unless it was called before. Throws
// std::runtime_error if no hook is available.
RECOUP_API void install_hook();
// Name of the installed hook, as in RECOUP_HOOK.
RECOUP_API const char* hook_name();
// Whether ops of this thread bypass recoup (true), also within a scope. Returns the previous state.
RECOUP_API bool set_unseen(bool on);
// Sends this thread's ops through recoup's dispatcher entry without a budget: an empty boxed
// fallback. The baseline of bench/watching.py.
RECOUP_API void pass_through(bool on);

// How recoup classifies an op of PyTorch; for tests.
struct ReplayTraits {
  bool seen;          // recorded as one op, not as the ops that it calls
  bool repeatable;    // may be replayed, unless the arguments of a call rule it out
  bool verifiable;    // all bytes of its results are defined
  bool random;        // draws random numbers
  bool thread_order;  // writes in the order of its threads on the CPU
  // Overload that a replay calls instead, with a generator; empty if there is none.
  std::string with_generator;
};
// The classification of an op. Throws std::invalid_argument if PyTorch has no such op.
RECOUP_API ReplayTraits replay_traits(const std::string& name, const std::string& overload);

// Makes the first calls of the math functions that PyTorch takes from oneMKL, so that the first
// result of each has the bits of all later ones. Entering a budget does so too; call it earlier to
// compare with a run without a budget. Returns the names of the ops that were called, of the first
// call. Note [First calls] in math_functions.h has the reason.
RECOUP_API std::vector<std::string> choose_math_kernels();
// Id of the current combination of process and thread settings, for tests: equal settings have
// equal ids.
RECOUP_API std::uint64_t settings_number();
// Lets profilers read addresses of arguments, also of evicted tensors, on this thread and on the
// threads on which autograd runs its backward passes. Call it with true both before and after the
// profiler starts, and with false when it has ended.
RECOUP_API void let_observers_look(bool on);

// An escape of a tensor's storage that lasts as long as an object which shows its bytes, such as a
// NumPy array. Until the escape has ended, nothing is recomputed from the storage.
class RECOUP_API Shown {
 public:
  // Makes the storage resident; it keeps its place until it dies.
  explicit Shown(const at::Tensor& tensor);
  // Ends the escape. The object and all that refers to its memory must be gone. Has no effect the
  // second time, and none if the storage has escaped in another way.
  void end();

 private:
  const void* session_ = nullptr;  // null: nothing is shown
  StorageId storage_;
  std::uint64_t birth_ = 0;
};

// A CUDA graph that is captured within a budget: Note [Captured graphs] in captured_graph.cpp.
// Functions that throw for lack of room throw c10::OutOfMemoryError.
class RECOUP_API CapturedGraph {
 public:
  // Call it before the capture, with the stream that will be captured as the current one. Returns
  // null if no budget on this GPU gets the calling thread's requests. Throws for lack of room, and
  // std::runtime_error if the budget's options exclude captures, or if a capture is under way.
  [[nodiscard]] static std::unique_ptr<CapturedGraph> begin(int device);
  // Releases the graph's memory.
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Call it within the capture, as its last action. Throws for lack of room; end the capture then.
  void close();
  // Call it when the capture has ended. `captured`: whether there is a graph, which then owns the
  // memory that it uses.
  void end(bool captured);
  // Call it before each launch of the graph, on the stream of the launch. Throws for lack of room,
  // and std::runtime_error if there is no graph, or if a tensor that it uses has got other memory.
  void replay();
  // The graph is gone: its memory is free again. Has no effect the second time.
  void release();

 private:
  struct Parts;
  explicit CapturedGraph(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Call it before each launch of a graph that was captured without an object of this class. Throws
// for lack of room in a budget on a GPU.
RECOUP_API void launch_graph_from_outside();

// Charges the CPU's budget, if a scope is entered, for bytes that are about to be allocated outside
// its pool, and makes room for them. Release it after the allocation, and charge the tensor
// instead.
class RECOUP_API Reservation {
 public:
  // Charges `size` bytes.
  explicit Reservation(Bytes size);
  // Releases the charge.
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  // Releases the charge now. Has no effect the second time.
  void release();

 private:
  const void* session_ = nullptr;  // null: nothing is charged
  StorageId storage_;
};

// A function that throws the exception of the program's language for a report. It must not return.
using OutOfBudgetThrower = void (*)(const OutOfBudgetReport& report);
// Installs the function, for bindings.
RECOUP_API void set_out_of_budget_thrower(OutOfBudgetThrower thrower);

}  // namespace recoup
