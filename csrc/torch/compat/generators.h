// Random numbers: a kernel's draw from the program's generator, and the same draw in a replay.
//
// Note [The generator's gate]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~
// Every kernel that draws, on every thread, watched or not, locks its generator's mutex while it
// draws. So do manual_seed and the getter and setter of the state. That mutex is the gate:
//
//   first run   The generator is locked around [save the state, run the kernel]. No other draw
//               comes between the two, so the saved state is the one that the kernel began with.
//   replay      If the op or an overload of it takes a generator, the kernel gets a private one in
//               that state. No thread is locked out, nothing is restored.
//               Otherwise (native_dropout, attention) the default generator is locked around
//               [save the program's state, rewind, run the kernel, restore].
//
// The kernel locks the mutex itself, so the mutex must be recursive for the thread that holds the
// gate. std::mutex is a pthread mutex; that of the CPU's default generator is made recursive when
// recoup is loaded. If that does not work, the results of ops that take no generator are
// non-recomputable. Generators that the program made are not changed: a kernel draws from a copy,
// whose state is copied back.
//
// Lock order: the GIL is not waited for while a generator is locked (manual_seed waits for the
// generator with the GIL). A generator is locked before a session, never the other way round. So
// the gate is taken after the op's arguments were acquired. An object that dies in a session while
// this thread holds a gate, and may need the GIL to die, is destroyed later
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

// The state of a generator at one moment: all numbers of a CPU generator; the seed and the offset
// of any other, from which it computes its numbers.
class SavedGenerator {
 public:
  // Both are called with the generator's lock held.
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
  std::array<std::uint64_t, 2> counter_{};  // seed and offset
};

// Shared: several ops may have started from the same one.
using GeneratorState = std::shared_ptr<const SavedGenerator>;

// The generator that an op would draw from, given its arguments and the default generator of its
// device; none if its state cannot be restored.
std::optional<at::Generator> generator_of(c10::ArrayRef<c10::IValue> arguments,
                                          at::Generator default_generator);

// Note [The generator's gate]: whether kernels on devices of the type draw while their caller holds
// the generator's lock, or from a private generator. Others lock the generator themselves, and its
// state is a seed and an offset.
[[nodiscard]] inline bool is_gated(c10::DeviceType type) { return type == c10::DeviceType::CPU; }

// Whether the state of the generator can be read and set while a CUDA graph is captured.
[[nodiscard]] bool may_draw_in_capture(const at::Generator& generator);

// Whether an op on the CPU without a generator argument can be run and replayed with the gate held.
bool gate_works();

// A new generator in that state, which no other code uses.
at::Generator private_generator(const GeneratorState& state);

// Locks a generator as Note [The generator's gate] says, and counts this thread's locks.
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

// The draw of a kernel that is about to run; lives as long as the kernel runs.
class Draw {
 public:
  // `slot`: the generator argument among those that the kernel will get; null if it takes none.
  Draw(at::Generator generator, c10::IValue* slot);
  ~Draw();
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;

  [[nodiscard]] const GeneratorState& before() const { return before_; }
  // Whether the kernel has drawn. Not for a kernel that draws with the gate held.
  [[nodiscard]] bool has_advanced();
  // Restores the program's generator: the kernel failed and will be run again.
  void undo();

 private:
  at::Generator generator_;
  at::Generator copy_;  // the kernel draws from it instead, if defined
  std::optional<GeneratorLock> lock_;
  GeneratorState before_;
};

// Rewinds the generator that a kernel will draw from. The destructor restores the program's state.
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

// Called around fork: a child has only the thread that forked, and another thread may be drawing.
void lock_generator_for_fork();
void unlock_generator_in_parent();
void renew_generator_in_child();

}  // namespace recoup::detail
