// Random numbers: a kernel's draw from the program's generator, and the same draw again.
//
// Note [The generator's gate]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~
// Every kernel that draws, on every thread, watched or not, locks its generator's mutex while it
// does; so do manual_seed and the getter and setter of the state. That mutex is the gate:
//
//   first run   its generator is locked over [keep the state, run the kernel]. No other draw comes
//               between the two, so the state is the one that the kernel began with.
//   replay      of an op that takes a generator, or has an overload that does: the kernel gets a
//               generator of our own in that state. Nobody is locked out, nothing is restored.
//               Of an op that takes none (native_dropout, attention): the default one is locked
//               over [keep the program's state, rewind, run the kernel, put it back].
//
// The kernel locks the mutex itself, so it must be recursive for the thread that holds the gate.
// std::mutex is a pthread mutex; the one of the CPU's default generator is made a recursive one
// when recoup is loaded. Where that does not work, ops that take no generator make leaves.
// Generators of the program's own are left as they are: their kernels draw from a copy, which is
// copied back.
//
// Locks are taken in this order: the GIL is not waited for while a generator is held (manual_seed
// waits for the generator with the GIL); a generator, then a session's lock, never the other way.
// So the gate is taken after the op's arguments were acquired, and what dies in a session while
// this thread holds a gate, and may need the GIL to do so, is buried later
// (EngineMutex::unlock_and_bury).
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace recoup::detail {

// The state of a generator at one moment: of the CPU's all of its numbers, of a GPU's its seed and
// its offset, from which it computes them.
class SavedGenerator {
 public:
  // With its lock held, both.
  explicit SavedGenerator(const at::Generator& generator);
  void put_into(at::Generator& generator) const;

  friend bool operator==(const SavedGenerator& a, const SavedGenerator& b);

 private:
  struct OfCpu {
    at::mt19937 engine;
    std::optional<float> next_float;
    std::optional<double> next_double;
  };
  std::optional<OfCpu> cpu_;
  std::array<std::uint64_t, 2> gpu_{};
};

// Shared: several ops may have started from the same one.
using GeneratorState = std::shared_ptr<const SavedGenerator>;

// The generator that an op on the device would draw from, given its arguments; none: not one that
// can be restored.
std::optional<at::Generator> generator_of(c10::ArrayRef<c10::IValue> arguments, c10::Device device);

// Whether an op without an argument for a generator can be run and replayed behind the gate.
bool has_gate(c10::Device device);

// A generator that nobody else has, in that state.
at::Generator private_generator(const GeneratorState& state);

// Locks a generator, as the Note says, and knows on which thread.
class GeneratorLock {
 public:
  explicit GeneratorLock(const at::Generator& generator);
  ~GeneratorLock();
  GeneratorLock(const GeneratorLock&) = delete;
  GeneratorLock& operator=(const GeneratorLock&) = delete;

  [[nodiscard]] static bool held_by_this_thread() { return depth() > 0; }

 private:
  static int& depth();

  at::Generator generator_;
  const std::lock_guard<std::mutex> lock_;
};

// The draw of a kernel that is about to run, for as long as it runs.
class Draw {
 public:
  // `slot`: the argument for a generator among those that the kernel will be given; null: none.
  Draw(at::Generator generator, c10::IValue* slot);
  ~Draw();
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;

  [[nodiscard]] const GeneratorState& before() const { return before_; }
  // The kernel failed, and will be run again: the program's generator is as it was.
  void undo();

 private:
  at::Generator generator_;
  at::Generator copy_;  // that the kernel draws from instead
  std::optional<GeneratorLock> lock_;
  GeneratorState before_;
};

// Rewinds the generator that a kernel will draw from and, at the end, puts it back to where the
// program has it.
class GeneratorGuard {
 public:
  GeneratorGuard(at::Generator generator, const GeneratorState& state);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  at::Generator generator_;
  std::optional<GeneratorLock> lock_;
  std::optional<SavedGenerator> before_;
};

// Around fork: a child has only the thread that forked, and it may be another that draws.
void lock_generator_for_fork();
void unlock_generator_in_parent();
void renew_generator_in_child();

}  // namespace recoup::detail
